/*
 * dat_extension_op: the call with a variable number of arguments, which Rust cannot
 * define. The arguments are read here and passed on with their types.
 */
#include <stdarg.h>
#include <stddef.h>

#include <dat2/dat_ib_extensions.h>
#include <dat2/udat.h>
#include <dat2/udat_redirection.h>

/* In Rust (version/extension.rs). */

/* Returns the table of another provider that a handle belongs to, or null. */
const DAT_PROVIDER *libdat2_foreign_table(DAT_HANDLE handle);
DAT_RETURN libdat2_write_immed(DAT_EP_HANDLE ep, DAT_COUNT count, DAT_LMR_TRIPLET *local,
                               DAT_DTO_COOKIE cookie, const DAT_RMR_TRIPLET *remote,
                               DAT_UINT32 immediate, DAT_COMPLETION_FLAGS flags);
DAT_RETURN libdat2_fetch_and_add(DAT_EP_HANDLE ep, DAT_UINT64 add, DAT_LMR_TRIPLET *local,
                                 DAT_DTO_COOKIE cookie, const DAT_RMR_TRIPLET *remote,
                                 DAT_COMPLETION_FLAGS flags);
DAT_RETURN libdat2_cmp_and_swap(DAT_EP_HANDLE ep, DAT_UINT64 compare, DAT_UINT64 swap,
                                DAT_LMR_TRIPLET *local, DAT_DTO_COOKIE cookie,
                                const DAT_RMR_TRIPLET *remote, DAT_COMPLETION_FLAGS flags);
/* Opens an adapter, by the registry or as the provider of another one, and queries it. */
DAT_RETURN libdat2_open_query(DAT_NAME_PTR name, DAT_BOOLEAN by_registry, DAT_IA_HANDLE *ia,
                              DAT_IA_ATTR_MASK ia_mask, DAT_IA_ATTR *ia_attr,
                              DAT_PROVIDER_ATTR_MASK provider_mask,
                              DAT_PROVIDER_ATTR *provider_attr);
DAT_RETURN libdat2_close_query(DAT_IA_HANDLE ia);
/* Refuses an operation that the library does not have. */
DAT_RETURN libdat2_other_operation(DAT_HANDLE handle, DAT_EXTENDED_OP operation);

static DAT_RETURN open_query(DAT_NAME_PTR name, DAT_BOOLEAN by_registry, va_list arguments)
{
    DAT_IA_HANDLE *ia = va_arg(arguments, DAT_IA_HANDLE *);
    DAT_IA_ATTR_MASK ia_mask = va_arg(arguments, DAT_IA_ATTR_MASK);
    DAT_IA_ATTR *ia_attr = va_arg(arguments, DAT_IA_ATTR *);
    DAT_PROVIDER_ATTR_MASK provider_mask = va_arg(arguments, DAT_PROVIDER_ATTR_MASK);
    DAT_PROVIDER_ATTR *provider_attr = va_arg(arguments, DAT_PROVIDER_ATTR *);

    return libdat2_open_query(name, by_registry, ia, ia_mask, ia_attr, provider_mask,
                              provider_attr);
}

static DAT_RETURN write_immed(DAT_EP_HANDLE ep, va_list arguments)
{
    DAT_COUNT count = va_arg(arguments, DAT_COUNT);
    DAT_LMR_TRIPLET *local = va_arg(arguments, DAT_LMR_TRIPLET *);
    DAT_DTO_COOKIE cookie = va_arg(arguments, DAT_DTO_COOKIE);
    const DAT_RMR_TRIPLET *remote = va_arg(arguments, const DAT_RMR_TRIPLET *);
    DAT_UINT32 immediate = va_arg(arguments, DAT_UINT32);
    DAT_COMPLETION_FLAGS flags = va_arg(arguments, DAT_COMPLETION_FLAGS);

    return libdat2_write_immed(ep, count, local, cookie, remote, immediate, flags);
}

static DAT_RETURN fetch_and_add(DAT_EP_HANDLE ep, va_list arguments)
{
    DAT_UINT64 add = va_arg(arguments, DAT_UINT64);
    DAT_LMR_TRIPLET *local = va_arg(arguments, DAT_LMR_TRIPLET *);
    DAT_DTO_COOKIE cookie = va_arg(arguments, DAT_DTO_COOKIE);
    const DAT_RMR_TRIPLET *remote = va_arg(arguments, const DAT_RMR_TRIPLET *);
    DAT_COMPLETION_FLAGS flags = va_arg(arguments, DAT_COMPLETION_FLAGS);

    return libdat2_fetch_and_add(ep, add, local, cookie, remote, flags);
}

static DAT_RETURN cmp_and_swap(DAT_EP_HANDLE ep, va_list arguments)
{
    DAT_UINT64 compare = va_arg(arguments, DAT_UINT64);
    DAT_UINT64 swap = va_arg(arguments, DAT_UINT64);
    DAT_LMR_TRIPLET *local = va_arg(arguments, DAT_LMR_TRIPLET *);
    DAT_DTO_COOKIE cookie = va_arg(arguments, DAT_DTO_COOKIE);
    const DAT_RMR_TRIPLET *remote = va_arg(arguments, const DAT_RMR_TRIPLET *);
    DAT_COMPLETION_FLAGS flags = va_arg(arguments, DAT_COMPLETION_FLAGS);

    return libdat2_cmp_and_swap(ep, compare, swap, local, cookie, remote, flags);
}

/* Takes the place of dat_extension_op in the provider table. */
__attribute__((visibility("hidden")))
DAT_RETURN libdat2_extension(DAT_HANDLE handle, DAT_EXTENDED_OP operation, va_list arguments);
DAT_RETURN libdat2_extension(DAT_HANDLE handle, DAT_EXTENDED_OP operation, va_list arguments)
{
    switch (operation) {
    case DAT_IB_RDMA_WRITE_IMMED_OP:
        return write_immed(handle, arguments);
    case DAT_IB_FETCH_AND_ADD_OP:
        return fetch_and_add(handle, arguments);
    case DAT_IB_CMP_AND_SWAP_OP:
        return cmp_and_swap(handle, arguments);
    case DAT_IB_OPEN_QUERY_OP:
        return open_query(handle, DAT_FALSE, arguments);
    case DAT_IB_CLOSE_QUERY_OP:
        return libdat2_close_query(handle);
    default:
        return libdat2_other_operation(handle, operation);
    }
}

/* The linker exports it as dat_extension_op. */
__attribute__((visibility("hidden")))
DAT_RETURN _dat_extension_op(DAT_HANDLE handle, DAT_EXTENDED_OP operation, ...);
DAT_RETURN _dat_extension_op(DAT_HANDLE handle, DAT_EXTENDED_OP operation, ...)
{
    DAT_HANDLE_EXTENDEDOP_FUNC call = libdat2_extension;
    const DAT_PROVIDER *table;
    DAT_RETURN result;
    va_list arguments;

    va_start(arguments, operation);
    if (operation == DAT_IB_OPEN_QUERY_OP) {
        /* The handle is the name of an adapter. */
        result = open_query(handle, DAT_TRUE, arguments);
    } else {
        table = libdat2_foreign_table(handle);
        if (table != NULL && table->handle_extendedop_func != NULL)
            call = table->handle_extendedop_func;
        result = call(handle, operation, arguments);
    }
    va_end(arguments);
    return result;
}
