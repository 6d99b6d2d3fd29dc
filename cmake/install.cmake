# The installation: the library, its public headers, a CMake package (find_package(onward) defines
# onward::onward) and onward.pc. All files may be moved together. In a wheel they are inside the
# Python package: onward/lib, onward/include.

include(CMakePackageConfigHelpers)
if(SKBUILD)
  # The Python package expects these names, not the names of the distribution.
  set(CMAKE_INSTALL_LIBDIR lib)
  set(CMAKE_INSTALL_INCLUDEDIR include)
endif()
include(GNUInstallDirs)
set(ONWARD_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/onward)
set(ONWARD_PKGCONFIG_DIR ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

add_library(onward::onward ALIAS onward)
target_include_directories(onward
  PUBLIC $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
if(APPLE)
  set_target_properties(onward PROPERTIES INSTALL_NAME_DIR "@rpath")
endif()

install(TARGETS onward EXPORT onwardTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY csrc/include/onward DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h")
if(SKBUILD)
  # The documents that messages name; `onward doctor --docs` prints them.
  install(DIRECTORY docs/ DESTINATION docs FILES_MATCHING PATTERN "*.md" PATTERN plots EXCLUDE)
endif()
install(EXPORT onwardTargets NAMESPACE onward:: DESTINATION ${ONWARD_CMAKE_DIR})

configure_package_config_file(cmake/onwardConfig.cmake.in onwardConfig.cmake
  INSTALL_DESTINATION ${ONWARD_CMAKE_DIR} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(onwardConfigVersion.cmake COMPATIBILITY SameMajorVersion)

file(RELATIVE_PATH ONWARD_PREFIX_FROM_PKGCONFIG
  ${CMAKE_INSTALL_PREFIX}/${ONWARD_PKGCONFIG_DIR} ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/onward.pc.in onward.pc @ONLY)

install(FILES
  ${CMAKE_CURRENT_BINARY_DIR}/onwardConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/onwardConfigVersion.cmake
  DESTINATION ${ONWARD_CMAKE_DIR})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/onward.pc DESTINATION ${ONWARD_PKGCONFIG_DIR})
