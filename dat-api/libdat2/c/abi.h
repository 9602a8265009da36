/* Input of build.rs, which generates the module abi from it: all headers that
 * programs include. */
#include <dat2/udat.h>
#include <dat2/dat_registry.h>
#include <dat2/dat_ib_extensions.h>
