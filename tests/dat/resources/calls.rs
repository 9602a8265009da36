//! The calls that create something.

use std::mem;
use std::ptr;

use dat::abi::*;
use dat::exports::*;

use super::{Undo, blank, made};
use crate::support::{
    End, Fixture, Memory, ServicePoint, Shape, ep_info, expect, ok, on_free_qualifier, srq,
    state_of,
};

/// A call that creates something, and the resources that it needs.
pub(super) struct Row {
    pub(super) call: &'static str,
    pub(super) make: fn(&Objects) -> Result<Undo, DAT_RETURN>,
    /// Whether it needs an object on the device; a descriptor. Resources of an
    /// EVD that an earlier endpoint used already exist.
    pub(super) needs: (bool, bool),
}

/// The objects that the calls are tried on.
pub(super) struct Objects {
    pub(super) fixture: Fixture,
    pub(super) evds: End,
    pub(super) memory: Memory,
    pub(super) srq: DAT_SRQ_HANDLE,
    pub(super) service_point: ServicePoint,
    pub(super) end: End,
}

impl Objects {
    pub(super) fn new() -> Self {
        let fixture = Fixture::new();
        Self {
            evds: End::without_ep(&fixture, &Shape::default()),
            memory: fixture.memory(4096),
            srq: srq(&fixture, 8),
            service_point: ServicePoint::new(&fixture),
            end: End::new(&fixture, &Shape::default()),
            fixture,
        }
    }
}

fn create_pz(objects: &Objects) -> Result<Undo, DAT_RETURN> {
    let mut pz = blank();
    // SAFETY: a live handle; the result is writable.
    let answer = unsafe { dat_pz_create(objects.fixture.ia, &raw mut pz) };
    made(answer, pz, dat_pz_free)
}

fn create_evd(objects: &Objects) -> Result<Undo, DAT_RETURN> {
    let mut evd = blank();
    // SAFETY: a live handle; the result is writable.
    let answer = unsafe {
        dat_evd_create(
            objects.fixture.ia,
            8,
            DAT_HANDLE_NULL,
            DAT_EVD_DTO_FLAG,
            &raw mut evd,
        )
    };
    made(answer, evd, dat_evd_free)
}

fn create_cno(objects: &Objects) -> Result<Undo, DAT_RETURN> {
    // SAFETY: a pointer and a function that may be null: zeros are good.
    let (mut cno, no_agent) = (blank(), unsafe { mem::zeroed() });
    // SAFETY: a live handle; no agent; the result is writable.
    let answer = unsafe { dat_cno_create(objects.fixture.ia, no_agent, &raw mut cno) };
    made(answer, cno, dat_cno_free)
}

fn create_srq(objects: &Objects) -> Result<Undo, DAT_RETURN> {
    let mut queue = blank();
    let mut attributes = DAT_SRQ_ATTR {
        max_recv_dtos: 8,
        max_recv_iov: 2,
        low_watermark: DAT_SRQ_LW_DEFAULT,
    };
    // SAFETY: live handles; the attributes are local, the result is writable.
    let answer = unsafe {
        dat_srq_create(
            objects.fixture.ia,
            objects.fixture.pz,
            &raw mut attributes,
            &raw mut queue,
        )
    };
    made(answer, queue, dat_srq_free)
}

fn create_ep(objects: &Objects) -> Result<Undo, DAT_RETURN> {
    let (mut ep, evds) = (blank(), objects.evds);
    let attributes = Shape::default().attributes();
    // SAFETY: live handles; the attributes are local, the result is writable.
    let answer = unsafe {
        dat_ep_create(
            objects.fixture.ia,
            objects.fixture.pz,
            evds.recv,
            evds.request,
            evds.connect,
            &raw const attributes,
            &raw mut ep,
        )
    };
    made(answer, ep, dat_ep_free)
}

fn create_ep_with_srq(objects: &Objects) -> Result<Undo, DAT_RETURN> {
    let (mut ep, evds) = (blank(), objects.evds);
    let mut attributes = Shape::default().attributes();
    attributes.max_recv_dtos = DAT_HW_DEFAULT;
    // SAFETY: live handles; the attributes are local, the result is writable.
    let answer = unsafe {
        dat_ep_create_with_srq(
            objects.fixture.ia,
            objects.fixture.pz,
            evds.recv,
            evds.request,
            evds.connect,
            objects.srq,
            &raw const attributes,
            &raw mut ep,
        )
    };
    made(answer, ep, dat_ep_free)
}

pub(super) fn register(
    fixture: &Fixture,
    kind: DAT_MEM_TYPE,
    region: DAT_REGION_DESCRIPTION,
    len: DAT_VLEN,
) -> Result<Undo, DAT_RETURN> {
    let mut lmr = blank();
    let (mut local, mut remote, mut length, mut address) = (0, 0, 0, 0);
    // SAFETY: live handles; what is registered lives longer.
    let answer = unsafe {
        dat_lmr_create(
            fixture.ia,
            kind,
            region,
            len,
            fixture.pz,
            DAT_MEM_PRIV_ALL_FLAG,
            &raw mut lmr,
            &raw mut local,
            &raw mut remote,
            &raw mut length,
            &raw mut address,
        )
    };
    made(answer, lmr, dat_lmr_free)
}

fn create_lmr(objects: &Objects) -> Result<Undo, DAT_RETURN> {
    let at = ptr::with_exposed_provenance_mut(objects.memory.address(0) as usize);
    register(
        &objects.fixture,
        DAT_MEM_TYPE_VIRTUAL,
        DAT_REGION_DESCRIPTION { for_va: at },
        4096,
    )
}

fn create_lmr_of_an_lmr(objects: &Objects) -> Result<Undo, DAT_RETURN> {
    let region = DAT_REGION_DESCRIPTION {
        for_lmr_handle: objects.memory.lmr,
    };
    register(&objects.fixture, DAT_MEM_TYPE_LMR, region, 4096)
}

fn create_rmr(objects: &Objects) -> Result<Undo, DAT_RETURN> {
    let mut rmr = blank();
    // SAFETY: a live handle; the result is writable.
    let answer = unsafe { dat_rmr_create(objects.fixture.pz, &raw mut rmr) };
    made(answer, rmr, dat_rmr_free)
}

fn create_psp(objects: &Objects) -> Result<Undo, DAT_RETURN> {
    let requests = objects.service_point.requests;
    let (mut psp, mut answer) = (blank(), DAT_SUCCESS);
    on_free_qualifier(|qualifier| {
        // SAFETY: live handles; the result is writable.
        answer = unsafe {
            dat_psp_create(
                objects.fixture.ia,
                qualifier,
                requests,
                DAT_PSP_CONSUMER_FLAG,
                &raw mut psp,
            )
        };
        let taken = answer & 0x3fff_0000 == DAT_CONN_QUAL_IN_USE;
        if taken { answer } else { DAT_SUCCESS }
    });
    made(answer, psp, dat_psp_free)
}

fn create_psp_any(objects: &Objects) -> Result<Undo, DAT_RETURN> {
    let requests = objects.service_point.requests;
    let (mut psp, mut qualifier) = (blank(), 0);
    // SAFETY: live handles; the results are writable.
    let answer = unsafe {
        dat_psp_create_any(
            objects.fixture.ia,
            &raw mut qualifier,
            requests,
            DAT_PSP_CONSUMER_FLAG,
            &raw mut psp,
        )
    };
    made(answer, psp, dat_psp_free)
}

pub(super) const ROWS: [Row; 13] = [
    row("dat_pz_create", create_pz, (true, false)),
    row("dat_evd_create", create_evd, (false, true)),
    row("dat_cno_create", create_cno, (false, true)),
    row("dat_srq_create", create_srq, (true, false)),
    row("dat_ep_create", create_ep, (true, false)),
    row("dat_ep_create_with_srq", create_ep_with_srq, (true, false)),
    row("dat_lmr_create", create_lmr, (true, false)),
    row(
        "dat_lmr_create of an LMR",
        create_lmr_of_an_lmr,
        (true, false),
    ),
    row("dat_rmr_create", create_rmr, (true, false)),
    row("dat_psp_create", create_psp, (false, true)),
    row("dat_psp_create_any", create_psp_any, (false, true)),
    row("dat_ep_connect", connect, (false, true)),
    row("dat_ep_modify", modify, (true, false)),
];

const fn row(
    call: &'static str,
    make: fn(&Objects) -> Result<Undo, DAT_RETURN>,
    needs: (bool, bool),
) -> Row {
    Row { call, make, needs }
}

/// `dat_ep_connect` of an endpoint that is unconnected before and after.
fn connect(objects: &Objects) -> Result<Undo, DAT_RETURN> {
    let (service_point, end) = (objects.service_point, objects.end);
    let answer = service_point.connect(end.ep, b"data");
    if answer != DAT_SUCCESS {
        assert_eq!(state_of(end.ep), DAT_EP_STATE_UNCONNECTED);
        return Err(answer);
    }
    Ok(Box::new(move || {
        let cr = service_point.take_request();
        // SAFETY: the live handle of an unanswered request.
        ok(unsafe { dat_cr_reject(cr) });
        expect(end.connect, DAT_CONNECTION_EVENT_PEER_REJECTED);
        // SAFETY: a live handle.
        ok(unsafe { dat_ep_reset(end.ep) });
    }))
}

/// `dat_ep_modify`, to a depth for which the endpoint needs another queue pair.
fn modify(objects: &Objects) -> Result<Undo, DAT_RETURN> {
    fn to(ep: DAT_EP_HANDLE, depth: DAT_COUNT) -> DAT_RETURN {
        let mut change = ep_info(ep);
        change.ep_attr.max_request_dtos = depth;
        // SAFETY: a live handle; the values are local.
        unsafe { dat_ep_modify(ep, DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_DTOS, &raw const change) }
    }
    let ep = objects.end.ep;
    let depth = || ep_info(ep).ep_attr.max_request_dtos;
    let before = depth();
    match to(ep, 500) {
        DAT_SUCCESS => Ok(Box::new(move || ok(to(ep, before)))),
        answer => {
            assert_eq!(depth(), before);
            Err(answer)
        }
    }
}
