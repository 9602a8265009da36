//! Numbers, handles and the values that have a special meaning.

use core::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

pub type DAT_UINT32 = u32;
pub type DAT_UINT64 = u64;
pub type DAT_UVERYLONG = c_ulonglong;
pub type DAT_PVOID = *mut c_void;
/// A number of things; negative only in the special values below.
pub type DAT_COUNT = c_int;
/// A physical address.
pub type DAT_PADDR = DAT_UINT64;
/// A virtual address.
pub type DAT_VADDR = DAT_UINT64;
/// A length in bytes.
pub type DAT_VLEN = DAT_UINT64;
/// Microseconds, or [`DAT_TIMEOUT_INFINITE`].
pub type DAT_TIMEOUT = DAT_UINT32;
/// A C string of at most [`DAT_NAME_MAX_LENGTH`] bytes with its NUL; never written to.
pub type DAT_NAME_PTR = *mut c_char;
pub type DAT_SOCK_ADDR = libc::sockaddr;
pub type DAT_SOCK_ADDR6 = libc::sockaddr_in6;
/// The address of an adapter; `sa_family` tells which `sockaddr` it is.
pub type DAT_IA_ADDRESS_PTR = *mut DAT_SOCK_ADDR;
/// What a service point listens on.
pub type DAT_CONN_QUAL = DAT_UINT64;
/// The same on the side that connects.
pub type DAT_PORT_QUAL = DAT_UINT64;
/// What names an LMR in a local segment.
pub type DAT_LMR_CONTEXT = DAT_UINT32;
/// What names an RMR, or an LMR, to the peer.
pub type DAT_RMR_CONTEXT = DAT_UINT32;

/// Every handle is an opaque pointer whose first word leads to the table of the provider that
/// made it ([`super::DAT_PROVIDER`]).
pub type DAT_HANDLE = DAT_PVOID;
pub type DAT_IA_HANDLE = DAT_HANDLE;
pub type DAT_PZ_HANDLE = DAT_HANDLE;
pub type DAT_LMR_HANDLE = DAT_HANDLE;
pub type DAT_RMR_HANDLE = DAT_HANDLE;
pub type DAT_EVD_HANDLE = DAT_HANDLE;
pub type DAT_CNO_HANDLE = DAT_HANDLE;
pub type DAT_EP_HANDLE = DAT_HANDLE;
pub type DAT_SRQ_HANDLE = DAT_HANDLE;
pub type DAT_PSP_HANDLE = DAT_HANDLE;
pub type DAT_RSP_HANDLE = DAT_HANDLE;
pub type DAT_CR_HANDLE = DAT_HANDLE;
pub const DAT_HANDLE_NULL: DAT_HANDLE = core::ptr::null_mut();
/// Given to `dat_ia_open`: asynchronous errors are taken elsewhere, make no EVD for them.
pub const DAT_EVD_ASYNC_EXISTS: DAT_EVD_HANDLE = core::ptr::without_provenance_mut(1);
/// Answered by it: the EVD for asynchronous errors exists, but not under this IA.
pub const DAT_EVD_OUT_OF_SCOPE: DAT_EVD_HANDLE = core::ptr::without_provenance_mut(2);

/// What a handle stands for.
pub type DAT_HANDLE_TYPE = c_uint;
pub const DAT_HANDLE_TYPE_CR: DAT_HANDLE_TYPE = 0;
pub const DAT_HANDLE_TYPE_EP: DAT_HANDLE_TYPE = 1;
pub const DAT_HANDLE_TYPE_EVD: DAT_HANDLE_TYPE = 2;
pub const DAT_HANDLE_TYPE_IA: DAT_HANDLE_TYPE = 3;
pub const DAT_HANDLE_TYPE_LMR: DAT_HANDLE_TYPE = 4;
pub const DAT_HANDLE_TYPE_PSP: DAT_HANDLE_TYPE = 5;
pub const DAT_HANDLE_TYPE_PZ: DAT_HANDLE_TYPE = 6;
pub const DAT_HANDLE_TYPE_RMR: DAT_HANDLE_TYPE = 7;
pub const DAT_HANDLE_TYPE_RSP: DAT_HANDLE_TYPE = 8;
pub const DAT_HANDLE_TYPE_CNO: DAT_HANDLE_TYPE = 9;
pub const DAT_HANDLE_TYPE_SRQ: DAT_HANDLE_TYPE = 10;

/// A truth value. What comes from C may be any number: everything but 0 is true.
pub type DAT_BOOLEAN = c_uint;
pub const DAT_FALSE: DAT_BOOLEAN = 0;
pub const DAT_TRUE: DAT_BOOLEAN = 1;

/// The 64 bits that a caller attaches to an object or a request; they come back bit for bit.
#[derive(Clone, Copy)]
#[repr(C)]
pub union DAT_CONTEXT {
    pub as_ptr: DAT_PVOID,
    pub as_64: DAT_UINT64,
    pub as_index: DAT_UVERYLONG,
}

/// Comes back in the completion of a transfer.
pub type DAT_DTO_COOKIE = DAT_CONTEXT;
/// Comes back in the completion of a bind.
pub type DAT_RMR_COOKIE = DAT_CONTEXT;

/// Bytes of a name, its NUL included.
pub const DAT_NAME_MAX_LENGTH: DAT_COUNT = 256;
/// [`DAT_NAME_MAX_LENGTH`] as the length of an array.
pub(crate) const NAME_BYTES: usize = DAT_NAME_MAX_LENGTH as usize;
pub const DAT_TIMEOUT_INFINITE: DAT_TIMEOUT = DAT_TIMEOUT::MAX;
/// A count that cannot be had at reasonable cost.
pub const DAT_VALUE_UNKNOWN: DAT_COUNT = -2;
/// Turns a high watermark off.
pub const DAT_WATERMARK_INFINITE: DAT_COUNT = -1;
pub const DAT_HW_DEFAULT: DAT_COUNT = DAT_WATERMARK_INFINITE;
pub const DAT_SRQ_LW_DEFAULT: DAT_COUNT = 0;
/// Bytes; the alignment that suits buffers best if the provider says nothing else.
pub const DAT_OPTIMAL_ALIGNMENT: DAT_COUNT = 256;
pub const DAT_AF_INET: DAT_COUNT = libc::AF_INET;
pub const DAT_AF_INET6: DAT_COUNT = libc::AF_INET6;
pub const DAT_VERSION_MAJOR: DAT_UINT32 = 1;
pub const DAT_VERSION_MINOR: DAT_UINT32 = 2;
/// What the macro `dat_ia_open` asks for.
pub const DAT_THREADSAFE: DAT_BOOLEAN = DAT_FALSE;
