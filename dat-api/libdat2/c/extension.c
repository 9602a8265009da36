/*
 * dat_extension_op: the call with a variable number of arguments, which Rust cannot
 * define. The arguments are read here and passed on with their types.
 */
#include <stdarg.h>
#include <stddef.h>

#include <dat2/udat.h>
#include <dat2/udat_redirection.h>

/* Returns the table of another provider that a handle belongs to, or null; in Rust. */
const DAT_PROVIDER *libdat2_foreign_table(DAT_HANDLE handle);
/* Refuses an operation that the library does not have; in Rust. */
DAT_RETURN libdat2_unknown_operation(DAT_HANDLE handle, DAT_EXTENDED_OP operation);

/* Takes the place of dat_extension_op in the provider table. */
__attribute__((visibility("hidden")))
DAT_RETURN libdat2_extension(DAT_HANDLE handle, DAT_EXTENDED_OP operation, va_list arguments);
DAT_RETURN libdat2_extension(DAT_HANDLE handle, DAT_EXTENDED_OP operation, va_list arguments)
{
    (void)arguments;
    return libdat2_unknown_operation(handle, operation);
}

/* The linker exports it as dat_extension_op. */
__attribute__((visibility("hidden")))
DAT_RETURN _dat_extension_op(DAT_HANDLE handle, DAT_EXTENDED_OP operation, ...);
DAT_RETURN _dat_extension_op(DAT_HANDLE handle, DAT_EXTENDED_OP operation, ...)
{
    const DAT_PROVIDER *table = libdat2_foreign_table(handle);
    DAT_HANDLE_EXTENDEDOP_FUNC call = libdat2_extension;
    DAT_RETURN result;
    va_list arguments;

    if (table != NULL && table->handle_extendedop_func != NULL)
        call = table->handle_extendedop_func;
    va_start(arguments, operation);
    result = call(handle, operation, arguments);
    va_end(arguments);
    return result;
}
