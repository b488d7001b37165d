# Stands for any trainer that knows nothing of muster: it prints its steps, saves into the folder that it is given, and
# goes on from the newest checkpoint there. It dies twice on the way.
set -eu
folder=$1
first=1
newest=$(ls "$folder" | sed -n 's/^step-\([0-9]*\)$/\1/p' | sort -n | tail -n 1)
[ -z "$newest" ] || first=$((newest + 1))
for step in $(seq "$first" 60); do
  sleep 0.2
  echo "epoch 1 step $step loss $((100 / step)).$((step % 10))"
  if [ $((step % 20)) = 0 ]; then
    mkdir -p "$folder/step-$step.tmp"
    echo "weights of step $step" > "$folder/step-$step.tmp/model"
    mv "$folder/step-$step.tmp" "$folder/step-$step"
  fi
  if [ "$step" -lt 60 ] && [ "$step" = $((first + 34)) ]; then
    echo "out of luck at step $step" >&2
    exit 1
  fi
done
