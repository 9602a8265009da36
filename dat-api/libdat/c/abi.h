/* What build.rs generates dat::abi from: all headers that programs include. */
#include <dat/udat.h>
#include <dat/dat_registry.h>
