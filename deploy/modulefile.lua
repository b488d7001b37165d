-- Environment module of muster for Lmod. Its own place, PREFIX/share/modulefiles/muster/VERSION.lua, tells where the
-- programs are, also through a link. So the folder of an archive may be moved. A copy elsewhere needs its `prefix`
-- written into it.

local place = subprocess("readlink -f '" .. myFileName():gsub("'", "'\\''") .. "'"):gsub("\n$", "")
local prefix = place:gsub("/share/modulefiles/muster/[^/]*$", "")

help("muster submits, watches and requeues training jobs. `muster doctor` says what is missing.")
whatis("muster " .. myModuleVersion() .. ": submits, watches and requeues training jobs")

if mode() == "load" and not isFile(pathJoin(prefix, "bin/muster")) then
  LmodError("muster: " .. prefix .. "/bin/muster is no program. " .. place ..
            " must be in share/modulefiles/muster of muster's folder, or be a link to it")
end
prepend_path("PATH", pathJoin(prefix, "bin"))
prepend_path("MANPATH", pathJoin(prefix, "share/man"))
-- The empty entry stands for the manuals of the system, which a MANPATH would hide otherwise.
append_path("MANPATH", "")
prepend_path("PYTHONPATH", pathJoin(prefix, "share/muster/python"))
