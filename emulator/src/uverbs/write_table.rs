//! The table of the commands of the write interface.

use std::fmt::Debug;
use std::sync::Arc;

use zerocopy::{FromBytes, IntoBytes, KnownLayout};

use super::abi::{
    AllocMw, AllocMwResp, AllocPdResp, CreateAh, CreateAhResp, CreateCq, CreateCqResp, CreateQp,
    CreateQpResp, CreateSrq, CreateSrqResp, DestroyCqResp, ExCreateCq, ExCreateCqResp, ExCreateQp,
    ExCreateQpResp, ExModifyCq, ExModifyQpResp, GetContextResp, HandleOnly, HandleRequest,
    ModifyQp, ModifySrq, QueryDeviceResp, QueryPort, QueryPortResp, QueryQp, QueryQpResp,
    QuerySrqResp, RegMr, RegMrResp, ReregMr, ReregMrResp, ResizeCq, ResizeCqResp, request,
    write_command,
};
use super::commands::Call;
use super::context::DeviceFile;
use super::ioctl::close;
use super::write_commands::{
    WriteCommand, alloc_mw, alloc_pd, create_ah, create_cq, create_qp, create_srq, ex_create_cq,
    ex_create_qp, ex_modify_qp, ex_query_device, get_context, reg_mr,
};
use crate::spec::Result;

/// A command: the minimum sizes of request and reply, and its function.
pub(super) struct CommandSpec {
    pub(super) number: u32,
    /// Size of the request in bytes, without the driver's part.
    pub(super) request: usize,
    /// Size of the reply in bytes, without the driver's part.
    pub(super) reply: usize,
    pub(super) run: fn(&Arc<DeviceFile>, &WriteCommand) -> Result<()>,
    /// Returns the request as text.
    pub(super) describe: fn(&[u8]) -> String,
}

fn describe<Request: FromBytes + IntoBytes + KnownLayout + Debug>(core: &[u8]) -> String {
    format!("{:?}", request::<Request>(core))
}

const fn entry<Request: FromBytes + IntoBytes + KnownLayout + Debug, Reply>(
    number: u32,
    run: fn(&Arc<DeviceFile>, &WriteCommand) -> Result<()>,
) -> CommandSpec {
    CommandSpec {
        number,
        request: size_of::<Request>(),
        reply: size_of::<Reply>(),
        run,
        describe: describe::<Request>,
    }
}

impl CommandSpec {
    pub(super) fn find(number: u32) -> Option<&'static Self> {
        COMMANDS.iter().find(|it| it.number == number)
    }
}

/// Returns whether a command by plain `write()` is followed by a driver part
/// (`UAPI_DEF_WRITE_UDATA_*`).
pub(super) fn has_driver_part(number: u32) -> bool {
    use write_command as it;
    matches!(
        number,
        it::GET_CONTEXT
            | it::ALLOC_PD
            | it::CREATE_AH
            | it::REG_MR
            | it::REREG_MR
            | it::ALLOC_MW
            | it::CREATE_CQ
            | it::RESIZE_CQ
            | it::CREATE_QP
            | it::MODIFY_QP
            | it::CREATE_SRQ
            | it::MODIFY_SRQ
    )
}

/// Extended replies may end after their `response_length`.
const EX_QUERY_DEVICE_LEAST: usize = size_of::<QueryDeviceResp>() + 8;

const COMMANDS: &[CommandSpec] = &[
    entry::<u64, GetContextResp>(write_command::GET_CONTEXT, get_context),
    entry::<u64, QueryDeviceResp>(write_command::QUERY_DEVICE, |file, it| {
        it.core_reply.reply(&Call::new(file).query_device()?)
    }),
    CommandSpec {
        number: write_command::EX_QUERY_DEVICE,
        request: 8,
        reply: EX_QUERY_DEVICE_LEAST,
        run: ex_query_device,
        describe: |_| String::new(),
    },
    entry::<QueryPort, QueryPortResp>(write_command::QUERY_PORT, |file, it| {
        let port = it.core::<QueryPort>().port_num;
        it.core_reply
            .reply(&Call::new(file).query_port(port.into())?.legacy_resp)
    }),
    entry::<u64, AllocPdResp>(write_command::ALLOC_PD, alloc_pd),
    entry::<HandleOnly, ()>(write_command::DEALLOC_PD, |file, it| {
        Call::new(file).dealloc_pd(it.core::<HandleOnly>().handle)
    }),
    entry::<CreateAh, CreateAhResp>(write_command::CREATE_AH, create_ah),
    entry::<HandleOnly, ()>(write_command::DESTROY_AH, |file, it| {
        Call::new(file).destroy_ah(it.core::<HandleOnly>().handle)
    }),
    entry::<RegMr, RegMrResp>(write_command::REG_MR, reg_mr),
    entry::<ReregMr, ReregMrResp>(write_command::REREG_MR, |file, it| {
        it.core_reply.reply(&Call::new(file).rereg_mr(&it.core())?)
    }),
    entry::<HandleOnly, ()>(write_command::DEREG_MR, |file, it| {
        Call::new(file).dereg_mr(it.core::<HandleOnly>().handle)
    }),
    entry::<AllocMw, AllocMwResp>(write_command::ALLOC_MW, alloc_mw),
    entry::<HandleOnly, ()>(write_command::DEALLOC_MW, |file, it| {
        Call::new(file).dealloc_mw(it.core::<HandleOnly>().handle)
    }),
    entry::<u64, u32>(write_command::CREATE_COMP_CHANNEL, |file, it| {
        let fd = Call::new(file).create_channel()?;
        it.core_reply.reply(&fd).inspect_err(|_| close(fd))
    }),
    entry::<CreateCq, CreateCqResp>(write_command::CREATE_CQ, create_cq),
    entry::<ExCreateCq, ExCreateCqResp>(write_command::EX_CREATE_CQ, ex_create_cq),
    entry::<ResizeCq, ResizeCqResp>(write_command::RESIZE_CQ, |file, it| {
        let cqe = Call::new(file).resize_cq(&it.core(), &it.driver)?;
        it.core_reply.reply(&ResizeCqResp { cqe, reserved: 0 })
    }),
    entry::<ExModifyCq, ()>(write_command::EX_MODIFY_CQ, |file, it| {
        it.check_tail::<ExModifyCq>()?;
        Call::new(file).modify_cq(&it.core())
    }),
    entry::<HandleRequest, DestroyCqResp>(write_command::DESTROY_CQ, |file, it| {
        it.core_reply
            .reply(&Call::new(file).destroy_cq(it.core::<HandleRequest>().handle)?)
    }),
    entry::<CreateSrq, CreateSrqResp>(write_command::CREATE_SRQ, create_srq),
    entry::<ModifySrq, ()>(write_command::MODIFY_SRQ, |file, it| {
        Call::new(file).modify_srq(&it.core())
    }),
    entry::<HandleRequest, QuerySrqResp>(write_command::QUERY_SRQ, |file, it| {
        it.core_reply
            .reply(&Call::new(file).query_srq(it.core::<HandleRequest>().handle)?)
    }),
    entry::<HandleRequest, u32>(write_command::DESTROY_SRQ, |file, it| {
        it.core_reply
            .reply(&Call::new(file).destroy_srq(it.core::<HandleRequest>().handle)?)
    }),
    entry::<CreateQp, CreateQpResp>(write_command::CREATE_QP, create_qp),
    entry::<ExCreateQp, ExCreateQpResp>(write_command::EX_CREATE_QP, ex_create_qp),
    entry::<ModifyQp, ()>(write_command::MODIFY_QP, |file, it| {
        Call::new(file).modify_qp(&it.core())
    }),
    entry::<ModifyQp, ExModifyQpResp>(write_command::EX_MODIFY_QP, ex_modify_qp),
    entry::<QueryQp, QueryQpResp>(write_command::QUERY_QP, |file, it| {
        it.core_reply
            .reply(&Call::new(file).query_qp(it.core::<QueryQp>().qp_handle)?)
    }),
    entry::<HandleRequest, u32>(write_command::DESTROY_QP, |file, it| {
        it.core_reply
            .reply(&Call::new(file).destroy_qp(it.core::<HandleRequest>().handle)?)
    }),
];

#[cfg(test)]
mod tests {
    use super::super::names;
    use super::*;

    #[test]
    fn every_command_has_a_name_and_shows_its_request() {
        for command in COMMANDS {
            let name = names::write_name(command.number);
            assert!(!name.contains("command"), "{name}");
            let shown = (command.describe)(&vec![0; command.request]);
            assert_eq!(shown.is_empty(), name == "EX_QUERY_DEVICE", "{name}");
        }
    }
}
