#!/usr/bin/env bash
# A trainer in a few lines: counts to $STEPS, keeps its step in the job's checkpoint folder, and resumes there.
set -euo pipefail
mkdir -p "$MUSTER_CHECKPOINT_FOLDER"
saved="$MUSTER_CHECKPOINT_FOLDER/rank-$RANK.step"
step=0
if [ -f "$saved" ]; then step=$(cat "$saved"); fi

save() { # mv replaces the file whole or not at all, whenever the machine stops
  echo "$step" > "$saved.new"
  mv "$saved.new" "$saved"
}
leave() {
  # The file MUSTER_STOP says why. If there is no file, somebody else asks, such as Slurm, and a save is right.
  if grep -qs '"save":false' "${MUSTER_STOP:-}"; then
    echo "asked to leave, and not to save: another rank is lost"
    exit 1
  fi
  save
  echo "asked to leave: saved step $step"
  exit 99 # start me again
}
trap leave TERM

echo "attempt $MUSTER_ATTEMPT: rank $RANK of $WORLD_SIZE begins after step $step"
while [ "$step" -lt "$STEPS" ]; do
  sleep 0.2 & wait $! # a signal ends the wait at once
  step=$((step + 1))
  save
  echo "step $step of $STEPS"
done
