# modules
if ! type module > /dev/null 2>&1; then
  for muster_file in "${MODULESHOME:-}/init/bash" /etc/profile.d/modules.sh /etc/profile.d/z00_lmod.sh /etc/profile.d/lmod.sh; do
    if [ -r "$muster_file" ]; then . "$muster_file"; break; fi
  done
fi
