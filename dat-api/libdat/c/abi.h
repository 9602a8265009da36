/* Input of build.rs, which generates the module abi from it: all headers that
 * programs include. */
#include <dat/udat.h>
#include <dat/dat_registry.h>
