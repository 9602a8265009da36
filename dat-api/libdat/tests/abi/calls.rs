//! Calls between C and Rust: the types of the provider table, and arguments that
//! are passed by value.

use crate::compiler::{C, compile};
use crate::{facts, here};
use core::any::TypeId;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::MaybeUninit;
use dat::abi::*;
use std::collections::BTreeMap;
use std::path::Path;

/// The parts of a function pointer's type.
trait Signature {
    fn parameters() -> Vec<TypeId>;
    fn result() -> TypeId;
}

macro_rules! signature {
    ($($parameter:ident)+) => {
        signature! { "C" $($parameter)+ }
        // For a call in which a thread may end.
        signature! { "C-unwind" $($parameter)+ }
    };
    ($abi:literal $($parameter:ident)+) => {
        impl<R: 'static, $($parameter: 'static),+> Signature
            for Option<unsafe extern $abi fn($($parameter),+) -> R>
        {
            fn parameters() -> Vec<TypeId> {
                vec![$(TypeId::of::<$parameter>()),+]
            }
            fn result() -> TypeId {
                TypeId::of::<R>()
            }
        }
    };
}

signature! { A }
signature! { A B }
signature! { A B C }
signature! { A B C D }
signature! { A B C D E }
signature! { A B C D E F }
signature! { A B C D E F G }
signature! { A B C D E F G H }
signature! { A B C D E F G H I }
signature! { A B C D E F G H I J }
signature! { A B C D E F G H I J K }

macro_rules! pointers {
    ($($name:ident)*) => {
        [$((
            stringify!($name),
            (<$name as Signature>::parameters(), <$name as Signature>::result()),
        )),*]
    };
}

/// Returns the function types of `dat::abi`.
fn pointers() -> BTreeMap<&'static str, (Vec<TypeId>, TypeId)> {
    pointers! {
        DAT_AGENT_FUNC DAT_PROVIDER_INIT_FUNC DAT_PROVIDER_FINI_FUNC DAT_IA_OPEN_FUNC
        DAT_IA_OPENV_FUNC DAT_IA_CLOSE_FUNC DAT_IA_QUERY_FUNC DAT_SET_CONSUMER_CONTEXT_FUNC
        DAT_GET_CONSUMER_CONTEXT_FUNC DAT_GET_HANDLE_TYPE_FUNC DAT_CR_QUERY_FUNC DAT_CR_ACCEPT_FUNC
        DAT_CR_REJECT_FUNC DAT_CR_HANDOFF_FUNC DAT_EVD_RESIZE_FUNC DAT_EVD_POST_SE_FUNC
        DAT_EVD_DEQUEUE_FUNC DAT_EVD_FREE_FUNC DAT_EVD_QUERY_FUNC DAT_EP_CREATE_FUNC
        DAT_EP_CREATE_WITH_SRQ_FUNC DAT_EP_QUERY_FUNC DAT_EP_MODIFY_FUNC DAT_EP_CONNECT_FUNC
        DAT_EP_DUP_CONNECT_FUNC DAT_EP_DISCONNECT_FUNC DAT_EP_POST_SEND_FUNC DAT_EP_POST_RECV_FUNC
        DAT_EP_POST_RDMA_READ_FUNC DAT_EP_POST_RDMA_WRITE_FUNC DAT_EP_GET_STATUS_FUNC
        DAT_EP_FREE_FUNC DAT_EP_RESET_FUNC DAT_EP_RECV_QUERY_FUNC DAT_EP_SET_WATERMARK_FUNC
        DAT_LMR_FREE_FUNC DAT_LMR_QUERY_FUNC DAT_LMR_SYNC_RDMA_READ_FUNC
        DAT_LMR_SYNC_RDMA_WRITE_FUNC DAT_RMR_CREATE_FUNC DAT_RMR_QUERY_FUNC DAT_RMR_BIND_FUNC
        DAT_RMR_FREE_FUNC DAT_PSP_CREATE_FUNC DAT_PSP_CREATE_ANY_FUNC DAT_PSP_QUERY_FUNC
        DAT_PSP_FREE_FUNC DAT_RSP_CREATE_FUNC DAT_RSP_QUERY_FUNC DAT_RSP_FREE_FUNC
        DAT_PZ_CREATE_FUNC DAT_PZ_QUERY_FUNC DAT_PZ_FREE_FUNC DAT_SRQ_CREATE_FUNC
        DAT_SRQ_SET_LW_FUNC DAT_SRQ_FREE_FUNC DAT_SRQ_QUERY_FUNC DAT_SRQ_RESIZE_FUNC
        DAT_SRQ_POST_RECV_FUNC DAT_LMR_CREATE_FUNC DAT_EVD_CREATE_FUNC DAT_EVD_MODIFY_CNO_FUNC
        DAT_CNO_CREATE_FUNC DAT_CNO_MODIFY_AGENT_FUNC DAT_CNO_QUERY_FUNC DAT_CNO_FREE_FUNC
        DAT_CNO_WAIT_FUNC DAT_EVD_ENABLE_FUNC DAT_EVD_WAIT_FUNC DAT_EVD_DISABLE_FUNC
        DAT_EVD_SET_UNWAITABLE_FUNC DAT_EVD_CLEAR_UNWAITABLE_FUNC
    }
    .into()
}

/// A type as C spells it.
struct Types(BTreeMap<&'static str, here::Type>);

impl Types {
    fn id(&self, spelling: &str) -> TypeId {
        let bare = spelling.trim_start_matches("const ").trim_end_matches(" *");
        let found = |name| self.0.get(name).unwrap_or_else(|| panic!("no type {name}"));
        match (spelling.starts_with("const "), spelling.ends_with(" *")) {
            _ if spelling == "void" => TypeId::of::<()>(),
            _ if spelling == "const char *" => TypeId::of::<*const c_char>(),
            // `const` on a parameter itself does not change the function's type.
            (_, false) => found(bare).id,
            (true, true) => found(bare).constant,
            (false, true) => found(bare).mutable,
        }
    }
}

#[test]
fn the_types_of_all_calls_are_those_of_the_facts() {
    let types = Types(here::types().into_iter().map(|t| (t.name, t)).collect());
    let facts: BTreeMap<_, _> = facts::calls("pointer")
        .into_iter()
        .map(|call| {
            let parameters = call.parameters.iter().map(|p| types.id(p)).collect();
            (call.name, (parameters, types.id(call.result)))
        })
        .collect();
    let here = pointers();
    assert_eq!(
        here.keys().collect::<Vec<_>>(),
        facts.keys().collect::<Vec<_>>()
    );
    for (name, pointer) in here {
        assert!(pointer == facts[name], "{name}");
    }
}

const COOKIE: u64 = 0x0123_4567_89ab_cdef;

fn answer(right: bool) -> DAT_RETURN {
    DAT_RETURN::from(!right)
}

fn is_cookie(context: DAT_CONTEXT) -> bool {
    // SAFETY: any 64 bits are a number.
    unsafe { context.as_64 == COOKIE }
}

/// Returns whether the segments are those of `convention.c`.
unsafe fn are_segments(count: DAT_COUNT, iov: *const DAT_LMR_TRIPLET) -> bool {
    // SAFETY: the caller passes what C passed, an array of two.
    let iov = unsafe { core::slice::from_raw_parts(iov, 2) };
    let values = |t: &DAT_LMR_TRIPLET| (t.lmr_context, t.virtual_address, t.segment_length);
    count == 2
        && iov
            .iter()
            .map(values)
            .eq([(0x11, 0x2000, 0x30), (0x44, 0x5000, 0x60)])
}

unsafe extern "C" fn set_context(_: DAT_HANDLE, context: DAT_CONTEXT) -> DAT_RETURN {
    answer(is_cookie(context))
}

unsafe extern "C" fn post_send(
    _: DAT_EP_HANDLE,
    count: DAT_COUNT,
    iov: *mut DAT_LMR_TRIPLET,
    cookie: DAT_DTO_COOKIE,
    flags: DAT_COMPLETION_FLAGS,
) -> DAT_RETURN {
    // SAFETY: `convention.c` passes its two segments.
    let segments = unsafe { are_segments(count, iov) };
    answer(segments && is_cookie(cookie) && flags == DAT_COMPLETION_UNSIGNALLED_FLAG)
}

unsafe extern "C" fn post_rdma_write(
    _: DAT_EP_HANDLE,
    count: DAT_COUNT,
    iov: *mut DAT_LMR_TRIPLET,
    cookie: DAT_DTO_COOKIE,
    remote: *const DAT_RMR_TRIPLET,
    flags: DAT_COMPLETION_FLAGS,
) -> DAT_RETURN {
    // SAFETY: `convention.c` passes its two segments, and one remote.
    let (segments, remote) = unsafe { (are_segments(count, iov), *remote) };
    let remote = (
        remote.rmr_context,
        remote.target_address,
        remote.segment_length,
    );
    answer(
        segments
            && is_cookie(cookie)
            && remote == (0x77, 0x8000, 0x90)
            && flags == DAT_COMPLETION_SUPPRESS_FLAG,
    )
}

unsafe extern "C" fn srq_post_recv(
    _: DAT_SRQ_HANDLE,
    count: DAT_COUNT,
    iov: *mut DAT_LMR_TRIPLET,
    cookie: DAT_DTO_COOKIE,
) -> DAT_RETURN {
    // SAFETY: `convention.c` passes its two segments.
    answer(unsafe { are_segments(count, iov) } && is_cookie(cookie))
}

unsafe extern "C" fn bind(
    _: DAT_RMR_HANDLE,
    local: *const DAT_LMR_TRIPLET,
    privileges: DAT_MEM_PRIV_FLAGS,
    _: DAT_EP_HANDLE,
    cookie: DAT_RMR_COOKIE,
    flags: DAT_COMPLETION_FLAGS,
    context: *mut DAT_RMR_CONTEXT,
) -> DAT_RETURN {
    // SAFETY: `convention.c` passes its two segments and a place.
    let segments = unsafe {
        *context = 0x1234;
        are_segments(2, local)
    };
    answer(
        segments
            && is_cookie(cookie)
            && privileges == DAT_MEM_PRIV_ALL_FLAG
            && flags == DAT_COMPLETION_BARRIER_FENCE_FLAG,
    )
}

unsafe extern "C" fn lmr_create(
    ia: DAT_IA_HANDLE,
    kind: DAT_MEM_TYPE,
    region: DAT_REGION_DESCRIPTION,
    length: DAT_VLEN,
    pz: DAT_PZ_HANDLE,
    privileges: DAT_MEM_PRIV_FLAGS,
    lmr: *mut DAT_LMR_HANDLE,
    lmr_context: *mut DAT_LMR_CONTEXT,
    rmr_context: *mut DAT_RMR_CONTEXT,
    registered_length: *mut DAT_VLEN,
    registered_address: *mut DAT_VADDR,
) -> DAT_RETURN {
    // SAFETY: `convention.c` passes its segments as shared memory, a name of
    // 40 bytes, and places for the results.
    unsafe {
        let shared = region.for_shared_memory;
        *lmr = ia;
        *lmr_context = 0x21;
        *rmr_context = 0x22;
        *registered_length = 0x23;
        *registered_address = 0x24;
        let name = CStr::from_ptr(shared.shared_memory_id.cast());
        answer(
            kind == DAT_MEM_TYPE_SHARED_VIRTUAL
                && are_segments(2, shared.virtual_address.cast())
                && name == c"shared"
                && length == 48
                && pz == ia
                && privileges == DAT_MEM_PRIV_READ_FLAG,
        )
    }
}

unsafe extern "C" fn cno_create(
    ia: DAT_IA_HANDLE,
    agent: DAT_OS_WAIT_PROXY_AGENT,
    _: *mut DAT_CNO_HANDLE,
) -> DAT_RETURN {
    let Some(function) = agent.proxy_agent_func else {
        return answer(false);
    };
    // SAFETY: a function of `convention.c` that stores its argument.
    unsafe { function(agent.instance_data, ia) };
    answer(true)
}

unsafe extern "C-unwind" fn evd_wait(
    evd: DAT_EVD_HANDLE,
    timeout: DAT_TIMEOUT,
    threshold: DAT_COUNT,
    event: *mut DAT_EVENT,
    nmore: *mut DAT_COUNT,
) -> DAT_RETURN {
    let data = DAT_DTO_COMPLETION_EVENT_DATA {
        ep_handle: evd,
        user_cookie: DAT_CONTEXT { as_64: COOKIE },
        status: DAT_DTO_ERR_FLUSHED,
        transfered_length: 1 << 40,
    };
    // SAFETY: `convention.c` passes places for both.
    unsafe {
        event.write(DAT_EVENT {
            event_number: DAT_DTO_COMPLETION_EVENT,
            evd_handle: evd,
            event_data: DAT_EVENT_DATA {
                dto_completion_event_data: data,
            },
        });
        nmore.write(threshold - 1);
    }
    answer(timeout == DAT_TIMEOUT_INFINITE && threshold == 3)
}

fn table() -> DAT_PROVIDER {
    // SAFETY: null pointers, and no functions.
    let empty: DAT_PROVIDER = unsafe { MaybeUninit::zeroed().assume_init() };
    DAT_PROVIDER {
        set_consumer_context_func: Some(set_context),
        ep_post_send_func: Some(post_send),
        ep_post_rdma_write_func: Some(post_rdma_write),
        srq_post_recv_func: Some(srq_post_recv),
        rmr_bind_func: Some(bind),
        lmr_create_func: Some(lmr_create),
        cno_create_func: Some(cno_create),
        evd_wait_func: Some(evd_wait),
        ..empty
    }
}

/// Loads the C side, built by `compiler`, and calls it with an object of this
/// test.
fn call_from_c(compiler: &str) -> c_int {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("convention-{compiler}.so"));
    let flags = [
        "-std=c99",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pedantic",
    ];
    compile(compiler, &flags, include_str!("convention.c"), Some(&path));
    let path = std::ffi::CString::new(path.into_os_string().into_encoded_bytes()).expect("a path");
    // SAFETY: the library has no constructors.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    assert!(!library.is_null(), "{compiler}: the library is not loaded");
    // SAFETY: an open library, and a C string.
    let function = unsafe { libc::dlsym(library, c"calls_by_value".as_ptr()) };
    assert!(!function.is_null(), "{compiler}: the function is not there");
    // SAFETY: `convention.c` defines the function with this type.
    let function: unsafe extern "C" fn(DAT_HANDLE) -> c_int =
        unsafe { core::mem::transmute::<*mut c_void, _>(function) };
    let table = table();
    let mut object: *const DAT_PROVIDER = &raw const table;
    // SAFETY: the object's first word points to the table, and both outlive the
    // call.
    unsafe { function((&raw mut object).cast()) }
}

#[test]
fn structs_pass_unchanged_from_c_to_rust_and_back() {
    for compiler in C {
        assert_eq!(
            call_from_c(compiler),
            0,
            "{compiler}: the number of the call"
        );
    }
}
