//! Notification objects.

use std::os::fd::AsRawFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use dat_api::handle::Pinned;
use dat_api::object::cno::{self, Agent, Cno};
use dat_api::object::evd::Timeout;
use dat_api::object::ia::Ia;
use dat_api::object::steps::Begun;
use dat_api::{CancellationDisabled, CnoRefusal, DatReturn, Handle, Kind, Result, Subtype, memory};

use crate::abi::*;
use crate::face::call::{Named, call, own_call};
use crate::face::cancel::{self, Parked};
use crate::face::frame::bad_argument;
use crate::face::handles::{bare, or_null, ours};
use crate::face::output::Out;
use crate::face::refused::{bad_handle, null_result, wait_refused};
use crate::face::subject::on;
use crate::providers::dispatch::foreign_wait;
use crate::version;

/// Converts an agent. Returns `None` if it has no function.
fn agent(agent: DAT_OS_WAIT_PROXY_AGENT) -> Result<Option<Agent>> {
    let data = agent.instance_data.expose_provenance();
    let Some(function) = agent.proxy_agent_func else {
        return match data {
            0 => Ok(None),
            _ => Err(bad_argument(
                Subtype::InvalidArg2,
                format!(
                    "the agent has the instance data {data:#x}, but no function: pass a function, \
                     or DAT_OS_WAIT_PROXY_AGENT_NULL"
                ),
            )),
        };
    };
    let words = [data, function as usize];
    // The agent may end its thread; the closure owns nothing that would need a
    // drop.
    Ok(Some(Agent::unguarded(words, move |evd| {
        // SAFETY: by the contract of `exports` this function may be called with
        // its instance data, once, on a thread of the library.
        unsafe { function(core::ptr::with_exposed_provenance_mut(data), or_null(evd)) }
    })))
}

/// Converts an [`Agent`] that [`agent`] made back to its C structure.
fn described(agent: Option<&Agent>) -> DAT_OS_WAIT_PROXY_AGENT {
    let [data, function] = agent.map_or([0, 0], Agent::words);
    DAT_OS_WAIT_PROXY_AGENT {
        instance_data: core::ptr::with_exposed_provenance_mut(data),
        // SAFETY: the word is 0, which is a null function pointer, or the address
        // of such a function: only `agent` makes agents that C can query.
        proxy_agent_func: unsafe { core::mem::transmute::<usize, DAT_AGENT_FUNC>(function) },
    }
}

call!(
    dat_cno_create,
    |ia: Pinned<Ia>, agent: DAT_OS_WAIT_PROXY_AGENT, cno_handle: Out<DAT_CNO_HANDLE>| {
        let place = cno_handle.required(Subtype::InvalidArg3)?;
        let agent = self::agent(agent)?;
        place.set_new(Cno::create(&ia.to_arc(), agent)?.handle(), Cno::free)
    }
);

call!(
    dat_cno_modify_agent,
    |cno: Pinned<Cno>, agent: DAT_OS_WAIT_PROXY_AGENT| {
        cno.to_arc().set_agent(self::agent(agent)?)
    }
);

call!(
    dat_cno_query,
    |cno: Pinned<Cno>, mask: DAT_CNO_PARAM_MASK, param: Out<DAT_CNO_PARAM>| {
        param.answer(mask, version::CNO_FIELDS, || {
            let agent = described(cno.agent().as_ref());
            let fd = cno.existing_descriptor().map(|fd| fd.as_raw_fd());
            version::cno_param(bare(cno.ia().handle()), agent, fd)
        })
    }
);

/// Creates a CNO with a file descriptor.
pub(crate) fn create_with_fd(
    ia: &Pinned<Ia>,
    fd: Out<DAT_FD>,
    cno_handle: Out<DAT_CNO_HANDLE>,
) -> Result<()> {
    let fd = fd.required(Subtype::InvalidArg2)?;
    let place = cno_handle.required(Subtype::InvalidArg3)?;
    let cno = Cno::create(&ia.to_arc(), None)?;
    let number = cno.descriptor().map(|fd| fd.as_raw_fd());
    let number = number.inspect_err(|_| _ = Cno::free(cno.handle()))?;
    place.set_new(cno.handle(), Cno::free)?;
    fd.set(number);
    Ok(())
}

/// Takes a trigger for the descriptor.
pub(crate) fn trigger(cno: &Pinned<Cno>, evd_handle: Out<DAT_EVD_HANDLE>) -> Result<DAT_RETURN> {
    let place = evd_handle.required(Subtype::InvalidArg2)?;
    // A trigger that was taken is returned.
    memory::commit()?;
    let taken = cno.to_arc().trigger();
    place.set(or_null(taken.ok().flatten()));
    match taken {
        Ok(_) => Ok(DatReturn::SUCCESS.bits()),
        Err(CnoRefusal::Empty { code }) => Ok(version::code(code)),
        Err(refusal) => Err(refusal.into()),
    }
}

own_call!(dat_cno_fd_arm, control, |cno: Pinned<Cno>| {
    memory::commit()?;
    Ok(cno.to_arc().arm()?)
});

call!(dat_cno_free, ending, |cno: Named<Cno>| Cno::free(cno.0));

/// Succeeds without an EVD if the IA is being closed or the last EVD was freed.
///
/// This call is a cancellation point. While it sleeps or calls another provider,
/// its frame holds nothing that needs a drop.
#[unsafe(export_name = symbol!(dat_cno_wait))]
pub unsafe extern "C-unwind" fn dat_cno_wait(
    cno_handle: DAT_CNO_HANDLE,
    timeout: DAT_TIMEOUT,
    evd_handle: *mut DAT_EVD_HANDLE,
) -> DAT_RETURN {
    foreign_wait!(dat_cno_wait(cno_handle, timeout, evd_handle));
    const CALL: &str = "dat_cno_wait";
    // SAFETY: the contract of `exports`.
    let found = unsafe { Out::new(evd_handle) };
    let Some(cno) = ours(cno_handle).filter(|cno| cno.kind() == Some(Kind::Cno)) else {
        found.set(or_null(None));
        return bad_handle(CALL, Kind::Cno, cno_handle);
    };
    if evd_handle.is_null() {
        let refusal = null_result(Subtype::InvalidArg3, "EVD handle");
        return wait_refused(CALL, on("cno", cno_handle), refusal);
    }
    let state = CancellationDisabled::begin();
    let mut place = Parked::uninit();
    let waited = match first_poll(cno, timeout, &mut place) {
        Some(over) => over,
        // SAFETY: `first_poll` has stored a wait in the place.
        None => unsafe { cancel::finish(&mut place, state) }.unwrap_or(Err(PANICKED)),
    };
    found.set(or_null(waited.ok().flatten()));
    CancellationDisabled::end(state);
    match waited {
        Ok(_) => DatReturn::SUCCESS.bits(),
        Err(refusal @ (CnoRefusal::Empty { .. } | CnoRefusal::Interrupted)) => {
            version::code(refusal.code())
        }
        Err(refusal) => wait_refused(CALL, on("cno", cno_handle), refusal),
    }
}

const PANICKED: CnoRefusal = CnoRefusal::DeviceFailed;

/// Looks for a trigger once. Returns `None` if the wait goes on; the wait is then
/// in `place`.
fn first_poll(
    cno: Handle,
    timeout: DAT_TIMEOUT,
    place: &mut Parked<cno::Waiting>,
) -> Option<Result<Option<Handle>, CnoRefusal>> {
    let polled = catch_unwind(AssertUnwindSafe(|| {
        let timeout = match timeout {
            DAT_TIMEOUT_INFINITE => Timeout::Infinite,
            microseconds => Timeout::Micros(microseconds),
        };
        match cno::begin(cno, timeout) {
            Begun::Over(answer) => Some(answer),
            Begun::Waits(waiting) => {
                place.write(waiting);
                None
            }
        }
    }));
    polled.unwrap_or(Some(Err(PANICKED)))
}
