//! The device: its context, its capabilities, its ports.

use libc::{EINVAL, ENODATA, EOPNOTSUPP};

use super::Call;
use crate::config::Face;
use crate::limits;
use crate::refusal::{OrRefuse, refuse_if};
use crate::spec::gid::Gid;
use crate::spec::{CLOCK_KHZ, Link, PortAddress, Result};
use crate::sysfs::interface_index;
use crate::uverbs::abi::{
    ExQueryDeviceResp, GidEntry, Mlx5AllocUcontextReq, Mlx5AllocUcontextResp, Mlx5QueryDeviceResp,
    QueryDeviceResp, QueryPortResp, QueryPortRespEx,
};
use crate::uverbs::clock;
use crate::uverbs::registers::Registers;

/// Number of completion vectors of a device.
pub(in crate::uverbs) const COMPLETION_VECTORS: u32 = 1;
/// `IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS`: optional access flags are accepted.
pub(in crate::uverbs) const CORE_SUPPORT: u64 = 1;

/// `MLX5_LIB_CAP_DYN_UAR`.
const LIB_CAP_DYN_UAR: u64 = 1 << 1;
/// `MLX5_IB_ALLOC_UCTX_DEVX`.
const UCTX_DEVX: u32 = 1;
/// The valid bits of a timestamp, as mlx5_ib reports them.
const TIMESTAMPS: u64 = u64::MAX >> 1;
/// Port states {logical, physical}: `IB_PORT_ACTIVE` and `LinkUp`.
const UP: (u8, u8) = (4, 5);
/// Port states `IB_PORT_DOWN` and `Polling`.
const DOWN: (u8, u8) = (1, 2);

impl Call<'_> {
    /// Opens the context of this file, which is possible once.
    pub(in crate::uverbs) fn get_context(
        &mut self,
        request: &Mlx5AllocUcontextReq,
    ) -> Result<Mlx5AllocUcontextResp> {
        refuse_if(
            self.state.context.is_some(),
            EINVAL,
            "this descriptor has a context already",
        )?;
        refuse_if(
            request.reserved0 != 0 || request.reserved1 != 0,
            EINVAL,
            "a reserved field of the request is not 0",
        )?;
        refuse_if(
            request.comp_mask != 0 || request.reserved2 != 0,
            EOPNOTSUPP,
            "the request has fields of a later kernel",
        )?;
        refuse_if(
            request.flags & UCTX_DEVX != 0 && !self.file.has_devx(),
            EOPNOTSUPP,
            "the device has no DevX (--data-in-order unknown, or --face write); libmlx5 then asks \
             again without",
        )?;
        // A kernel without ioctls does not know this request.
        let allocates_uar_pages = request.lib_caps & LIB_CAP_DYN_UAR != 0;
        let state = &mut *self.state;
        let registers = if allocates_uar_pages && self.file.face() == Face::Ioctl {
            None
        } else {
            let (total, low_latency) = (request.total_num_bfregs, request.num_low_latency_bfregs);
            Some(Registers::new(total, low_latency, &mut state.pages)?)
        };
        state.registers = registers;
        self.state.context = Some(self.backend().open_context(self.file.device())?);
        self.state.has_devx = request.flags & UCTX_DEVX != 0;
        self.state.cqe_version = request.max_cqe_version.min(self.file.cqe_version());
        Ok(self.context_reply())
    }

    /// Closes a context that was not returned to the application.
    pub(in crate::uverbs) fn close_unreturned_context(&mut self) {
        if let Some(context) = self.state.context.take() {
            self.backend().close_context(context);
            self.backend().events().remove_context(context);
        }
    }

    /// Returns the reply of [`Call::get_context`] again, for an imported descriptor.
    pub(in crate::uverbs) fn query_context(&mut self) -> Result<Mlx5AllocUcontextResp> {
        self.context()?;
        Ok(self.context_reply())
    }

    fn context_reply(&self) -> Mlx5AllocUcontextResp {
        let (tot_bfregs, num_dyn_bfregs) = self
            .state
            .registers
            .as_ref()
            .map_or((0, 0), Registers::counts);
        let narrow = |value: u32| u16::try_from(value).unwrap_or(u16::MAX);
        Mlx5AllocUcontextResp {
            qp_tab_size: limits::MAX_QP.next_power_of_two(),
            bf_reg_size: if self.file.has_blue_flame() {
                limits::BF_REG_SIZE
            } else {
                0
            },
            // If 0, libmlx5 allocates doorbell pages when it needs them.
            tot_bfregs,
            // The distance between doorbell records.
            cache_line_size: 64,
            max_sq_desc_sz: narrow(limits::MAX_SQ_DESC),
            max_rq_desc_sz: narrow(limits::MAX_RQ_DESC),
            max_send_wqebb: limits::MAX_WR,
            max_recv_wr: limits::MAX_WR,
            // libmlx5 itself checks requests against this.
            max_srq_recv_wr: self.file.limits().max_srq_wr,
            num_ports: self.file.ports().into(),
            flow_action_flags: 0,
            comp_mask: 0,
            response_length: u32::try_from(size_of::<Mlx5AllocUcontextResp>()).unwrap_or(0),
            cqe_version: self.state.cqe_version,
            // QUERY_DEVICE and CREATE_AH accept driver data.
            cmds_supp_uhw: 3,
            eth_min_inline: 0,
            clock_info_versions: clock::VERSIONS,
            hca_core_clock_offset: 0,
            log_uar_size: 12,
            num_uars_per_page: 1,
            num_dyn_bfregs,
            dump_fill_mkey: 0,
        }
    }

    fn capabilities(&self) -> u32 {
        self.file.limits().capabilities()
    }

    /// Returns the attributes of the device.
    pub(in crate::uverbs) fn query_device(&mut self) -> Result<QueryDeviceResp> {
        self.context()?;
        let limits = self.file.limits();
        // A device without SRQs reports sizes of 0 for them.
        let of_srqs = |value| if limits.has_srqs() { value } else { 0 };
        let guid = self.backend().identity(self.file.device()).guid;
        Ok(QueryDeviceResp {
            fw_ver: 22 << 32,
            node_guid: guid,
            sys_image_guid: guid,
            max_mr_size: limits.max_mr_size,
            page_size_cap: !0xfff,
            vendor_id: 0x02c9,
            vendor_part_id: 0x101d,
            hw_ver: 0,
            max_qp: limits.max_qp,
            max_qp_wr: limits.max_qp_wr,
            device_cap_flags: self.capabilities(),
            max_sge: limits.max_sge,
            max_sge_rd: limits.max_sge_rd.min(limits.max_sge),
            max_cq: limits.max_cq,
            max_cqe: limits.max_cqe,
            max_mr: limits.max_mr,
            max_pd: limits.max_pd,
            max_qp_rd_atom: limits.max_qp_rd_atom,
            max_ee_rd_atom: 0,
            max_res_rd_atom: limits.max_qp_rd_atom * limits.max_qp,
            max_qp_init_rd_atom: limits.max_qp_init_rd_atom,
            max_ee_init_rd_atom: 0,
            // IB_ATOMIC_HCA: atomic with respect to accesses through this device.
            // (In fact also to the processor's atomics, which is not reported.)
            atomic_cap: limits.has_atomics.into(),
            max_ee: 0,
            max_rdd: 0,
            max_mw: limits.max_mw,
            max_raw_ipv6_qp: 0,
            max_raw_ethy_qp: 0,
            max_mcast_grp: 0,
            max_mcast_qp_attach: 0,
            max_total_mcast_qp_attach: 0,
            max_ah: i32::MAX.cast_unsigned(),
            max_fmr: 0,
            max_map_per_fmr: 0,
            max_srq: limits.max_srq,
            max_srq_wr: of_srqs(limits.max_srq_wr),
            max_srq_sge: of_srqs(limits.max_srq_sge),
            max_pkeys: 1,
            local_ca_ack_delay: 16,
            phys_port_cnt: self.file.ports(),
            reserved: [0; 4],
        })
    }

    /// Returns the attributes of the device with the extensions, which are all absent.
    pub(in crate::uverbs) fn query_device_ex(
        &mut self,
    ) -> Result<(ExQueryDeviceResp, Mlx5QueryDeviceResp)> {
        let core = ExQueryDeviceResp {
            base: self.query_device()?,
            comp_mask: 0,
            response_length: u32::try_from(size_of::<ExQueryDeviceResp>()).unwrap_or(0),
            odp_general: 0,
            odp_transport: [0; 3],
            odp_reserved: 0,
            timestamp_mask: TIMESTAMPS,
            hca_core_clock: CLOCK_KHZ,
            device_cap_flags_ex: self.capabilities().into(),
            rss: [0; 4],
            max_wq_type_rq: 0,
            raw_packet_caps: 0,
            tag_matching: [0; 6],
            max_cq_moderation_count: limits::MAX_CQ_COUNT,
            max_cq_moderation_period: limits::MAX_CQ_PERIOD,
            moderation_reserved: 0,
            max_dm_size: 0,
            xrc_odp_caps: 0,
            reserved: 0,
        };
        let response_length = u32::try_from(size_of::<Mlx5QueryDeviceResp>()).unwrap_or(0);
        Ok((
            core,
            Mlx5QueryDeviceResp {
                comp_mask: 0,
                response_length,
            },
        ))
    }

    /// Returns the attributes of a port.
    pub(in crate::uverbs) fn query_port(&mut self, port: u64) -> Result<QueryPortRespEx> {
        self.context()?;
        let names = self.file.port_names(port)?;
        let (lid, sm_lid, link_layer) = match self.file.link() {
            Link::Ib => (names.lid, 1, 1),
            Link::Roce => (0, 0, 2),
        };
        let at = PortAddress {
            device: self.file.device(),
            port: u8::try_from(port).or_refuse(EINVAL, "there is no port with this number")?,
        };
        let is_up = self.backend().port_is_up(at);
        let (state, phys_state) = if is_up { UP } else { DOWN };
        let legacy_resp = QueryPortResp {
            port_cap_flags: self.file.link().port_capabilities(),
            max_msg_sz: limits::MAX_MSG,
            bad_pkey_cntr: 0,
            qkey_viol_cntr: 0,
            gid_tbl_len: limits::GID_TABLE,
            pkey_tbl_len: 1,
            lid,
            sm_lid,
            state,
            max_mtu: 5,
            active_mtu: names.mtu,
            lmc: 0,
            // The code of 4 virtual lanes.
            max_vl_num: 3,
            sm_sl: 0,
            subnet_timeout: 18,
            init_type_reply: 0,
            // 4 lanes of 25 Gb/s.
            active_width: 2,
            active_speed: 32,
            phys_state,
            link_layer,
            flags: 0,
            reserved: 0,
        };
        Ok(QueryPortRespEx {
            legacy_resp,
            port_cap_flags2: 0,
            reserved: [0; 6],
        })
    }

    /// Returns all GIDs of the device.
    pub(in crate::uverbs) fn gid_table(&mut self) -> Result<Vec<GidEntry>> {
        self.context()?;
        let ports = (1..=self.file.ports()).map(|port| self.port_gids(port.into()));
        Ok(ports.collect::<Result<Vec<_>>>()?.concat())
    }

    /// Returns the used entries of a port's GID table.
    fn port_gids(&self, port: u64) -> Result<Vec<GidEntry>> {
        let netdev_ifindex = match self.file.link() {
            Link::Ib => 0,
            Link::Roce => {
                let of_wire = self.file.port_names(port)?.interface;
                of_wire.unwrap_or_else(interface_index)
            }
        };
        let gids = self.file.gids(port)?;
        let entry = |(gid_index, gid): (u32, Gid)| GidEntry {
            gid: gid.raw,
            gid_index,
            port_num: u32::try_from(port).unwrap_or(0),
            gid_type: gid.kind as u32,
            netdev_ifindex,
        };
        Ok((0..).zip(gids).map(entry).collect())
    }

    /// Returns one entry of a port's GID table.
    pub(in crate::uverbs) fn gid_entry(&mut self, port: u64, index: u64) -> Result<GidEntry> {
        self.context()?;
        let entries = self.port_gids(port)?;
        refuse_if(
            index >= limits::GID_TABLE.into(),
            EINVAL,
            "the index is not below the size of the port's GID table",
        )?;
        let found = entries
            .into_iter()
            .find(|it| u64::from(it.gid_index) == index);
        found.or_refuse(ENODATA, "the entry of the GID table is empty")
    }
}
