#%Module1.0
## Environment module of muster. Its own place, PREFIX/share/modulefiles/muster/VERSION, tells where the programs are,
## also through a link. So the folder of an archive may be moved. A copy elsewhere needs its `prefix` written into it.

set place [file dirname [file normalize [file join $ModulesCurrentModulefile -]]]
set version [file tail $place]
set prefix [file normalize [file join [file dirname $place] .. .. ..]]

proc ModulesHelp {} {
    puts stderr "muster submits, watches and requeues training jobs. `muster doctor` says what is missing."
}

module-whatis "muster $version: submits, watches and requeues training jobs"
conflict muster

if {[module-info mode load] && ![file executable $prefix/bin/muster]} {
    puts stderr "muster: $prefix/bin/muster is no program. $place must be in share/modulefiles/muster of muster's folder,\
        or be a link to it"
    break
}
prepend-path PATH $prefix/bin
prepend-path MANPATH $prefix/share/man
# The empty entry stands for the manuals of the system, which a MANPATH would hide otherwise.
append-path MANPATH {}
prepend-path PYTHONPATH $prefix/share/muster/python
