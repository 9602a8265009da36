//! Bad handles: the line says what the handle is instead.

use dat::abi::{DAT_HANDLE, DAT_HANDLE_NULL};
use dat::exports::dat_ep_reset;
use dat_api::{DatReturn, Kind, ReturnType, Subtype};

use crate::face::calls::{Call, calls};
use crate::face::common::{live, stale};
use crate::face::fixture::Fixture;
use crate::refusals::printing::{is_one_line, printed, printing, refused};

fn label(kind: Result<Kind, &str>) -> String {
    kind.map_or("handle".into(), |kind| format!("{kind:?}").to_lowercase())
}

#[test]
fn a_bad_handle_is_named_with_what_it_is() {
    printing("handles::a_bad_handle_is_named_with_what_it_is", || {
        for Call {
            name,
            kind,
            subtype,
            call,
        } in calls()
        {
            let is = |handle: DAT_HANDLE, expected: &[&str]| {
                let label = label(kind);
                let code = (ReturnType::InvalidHandle, subtype);
                // SAFETY: the call validates its handle, and all pointers are null.
                refused((name, &label, handle), code, expected, || unsafe {
                    call(handle)
                });
            };
            let want = match kind {
                Ok(Kind::Cno) => "a CNO".to_owned(),
                Ok(kind @ (Kind::Cr | Kind::Psp | Kind::Pz)) => {
                    format!("a {kind:?}").to_uppercase().replacen('A', "a", 1)
                }
                Ok(kind) => format!("an {}", format!("{kind:?}").to_uppercase()),
                Err(objects) => objects.to_owned(),
            };
            let expected = format!("expected the handle of {want}");
            is(DAT_HANDLE_NULL, &["the handle is null", &expected]);
            for (handle, what) in [
                (stale(kind.unwrap_or(Kind::Ep)), "freed, or never created"),
                (
                    core::ptr::without_provenance_mut(64),
                    "no object has this handle",
                ),
            ] {
                let cause = format!("handle {:#x} is not {want}: ", handle.addr());
                is(handle, &[&cause, what]);
            }
            if let Ok(kind) = kind {
                let (other, its) = match kind {
                    Kind::Lmr => (Kind::Srq, "it is an SRQ"),
                    _ => (Kind::Lmr, "it is an LMR"),
                };
                let handle = live(other);
                let cause = format!("handle {:#x} is not {want}: {its}", handle.addr());
                is(handle, &[&cause, "pass the handle"]);
            }
        }
    });
}

#[test]
fn a_handle_of_the_parent_process_is_named_as_such() {
    printing(
        "handles::a_handle_of_the_parent_process_is_named_as_such",
        || {
            let w = Fixture::new();
            let code = DatReturn::error(ReturnType::InvalidHandle, Subtype::InvalidHandleEp);
            // SAFETY: the child calls the library once, and ends.
            let (status, text) = printed(|| unsafe {
                let child = libc::fork();
                if child == 0 {
                    let is_refused = dat_ep_reset(w.ep) == code.bits();
                    libc::_exit(i32::from(!is_refused));
                }
                let mut status = -1;
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                status
            });
            assert_eq!(status, 0, "{text}");
            let head = format!("libdat: dat_ep_reset(ep {:#x}): {code}: ", w.ep.addr());
            is_one_line(
                &text,
                &head,
                &["is not an EP of this process", "open an adapter"],
            );
        },
    );
}
