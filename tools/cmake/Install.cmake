# What is installed, for archives, packages and `cmake --install`. The component control is all that submits, runs and
# watches any program; worker trains recipes by LibTorch.
include_guard(GLOBAL)
include(GNUInstallDirs)

if(MUSTER_WITH_CONTROLLER)
  install(TARGETS musterd muster muster-agent muster-data RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT control)
  # Man pages and completion come from the help of the programs.
  install(CODE "
    execute_process(COMMAND python3 -B \"${PROJECT_SOURCE_DIR}/tools/package/share.py\"
      \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}\" \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATAROOTDIR}\"
      ${PROJECT_VERSION} COMMAND_ERROR_IS_FATAL ANY)" COMPONENT control)
  install(DIRECTORY python/muster python/hydra_plugins DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/muster/python COMPONENT control
          FILES_MATCHING PATTERN "*.py" PATTERN "py.typed")
  # Lmod takes the file in Lua, Environment Modules the one in Tcl.
  install(FILES deploy/modulefile.tcl DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/modulefiles/muster RENAME ${PROJECT_VERSION} COMPONENT control)
  install(FILES deploy/modulefile.lua DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/modulefiles/muster RENAME ${PROJECT_VERSION}.lua COMPONENT control)
  install(FILES README.md CHANGELOG.md LICENSE deploy/ADMIN.md deploy/muster.def deploy/partitions.toml deploy/slurm.conf.excerpt
          DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT control)
  install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT control PATTERN "__pycache__" EXCLUDE)
endif()
# With MUSTER_STATIC they go into the wheel and the packages of the worker: tools/package/worker_builds.py takes them.
foreach(_program muster-worker muster-infer)
  if(TARGET ${_program} AND NOT MUSTER_STATIC)
    install(TARGETS ${_program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT worker)
  endif()
endforeach()
