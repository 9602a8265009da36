//! Limits of other vendors' devices, as their drivers report them.
//!
//! The values are read from the source of Linux 6.1 (`drivers/infiniband`) and
//! rdma-core 65 (development), in the files named with each profile; none was
//! measured on a device. A value that the driver gets from its firmware is left
//! out, unless the note says which value was chosen. `max_sge` is the smaller of
//! the send and receive limits (`copy_query_dev_fields` in `core/uverbs_cmd.c`).

use super::Limits;

/// The limits of another vendor's device. The emulated device adopts them as far
/// as it supports them.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// The name after `profile:`.
    pub name: &'static str,
    /// The device's product name.
    pub device: &'static str,
    /// The limits as the driver reports them, which may exceed those of the
    /// emulated device, and the features that are missing.
    pub limits: &'static str,
    /// The files and symbols from which the limits were read.
    pub sources: &'static str,
    /// Values that were chosen or left out, with the reason; or empty.
    pub note: &'static str,
}

impl Profile {
    /// Returns the profile with this name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        PROFILES.iter().find(|profile| profile.name == name)
    }

    /// Lowers `limits` to those of the profile. Returns the entries of the
    /// profile that exceed the emulated device and were capped.
    pub(super) fn apply(&self, limits: &mut Limits) -> Vec<&'static str> {
        let lowered = self.limits.split(',').filter(|word| limits.lower(word));
        lowered.collect()
    }

    /// Returns the names of all profiles, for messages.
    #[must_use]
    pub fn names() -> String {
        let names: Vec<_> = PROFILES.iter().map(|profile| profile.name).collect();
        names.join(", ")
    }

    /// Returns a description of the profile, in lines of up to 100 characters.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut limits = Limits::DEVICE;
        let lowered = self.apply(&mut limits);
        let mut text = format!("profile:{:<13} {}\n", self.name, self.device);
        let mut part = |what: &str, words: &str| {
            if !words.is_empty() {
                text += &paragraph(what, words);
            }
        };
        part("limits", &limits.to_string().replace(',', " "));
        part("reports", &lowered.join(" "));
        part("sources", self.sources);
        part("note", self.note);
        text
    }
}

/// Formats words as lines, with a heading on the first line.
fn paragraph(heading: &str, words: &str) -> String {
    let mut text = String::new();
    let mut line = format!("  {heading:<8}");
    for word in words.split_whitespace() {
        if line.len() + 1 + word.len() > 100 {
            text += &line;
            text.push('\n');
            line = " ".repeat(10);
        }
        line.push(' ');
        line += word;
    }
    text + &line + "\n"
}

/// All profiles.
pub const PROFILES: &[Profile] = &[
    Profile {
        name: "irdma-roce",
        device: "Intel E810, RoCE v2",
        limits: "max_qp_wr=4063,max_sge=13,max_sge_rd=13,max_cqe=1048574,\
                 max_mr_size=35184372088832,max_qp_rd_atom=127,max_qp_init_rd_atom=255,\
                 max_inline=101,no_srq,no_atomics",
        sources: "hw/irdma: irdma_query_device and irdma_validate_qp_attrs in verbs.c, \
                  irdma_sc_dev_init in ctrl.c, enum irdma_device_caps_const in user.h, \
                  IRDMA_MAX_QP_WRS in defs.h, ICRDMA_MAX_IRD_SIZE in icrdma_hw.h",
        note: "",
    },
    Profile {
        name: "irdma-iwarp",
        device: "Intel E810, iWARP",
        limits: "max_qp_wr=4063,max_sge=13,max_sge_rd=13,max_cqe=1048574,\
                 max_mr_size=35184372088832,max_qp_rd_atom=127,max_qp_init_rd_atom=255,\
                 max_inline=101,no_srq,no_atomics",
        sources: "as irdma-roce: the limits do not depend on the protocol",
        note: "limits only: the emulated ports stay InfiniBand or RoCE",
    },
    Profile {
        name: "irdma-x722",
        device: "Intel X722, iWARP",
        limits: "max_qp_wr=895,max_sge=3,max_sge_rd=1,max_cqe=1048574,max_pd=32768,\
                 max_mr_size=35184372088832,max_qp_rd_atom=63,max_qp_init_rd_atom=127,\
                 max_inline=48,no_srq,no_atomics,no_cq_resize",
        sources: "hw/irdma: i40iw_init_hw in i40iw_hw.c, I40IW_MAX_* in i40iw_hw.h, \
                  irdma_resize_cq in verbs.c",
        note: "limits only, as irdma-iwarp",
    },
    Profile {
        name: "bnxt_re",
        device: "Broadcom BCM575xx, RoCE v2",
        limits: "max_sge=6,max_sge_rd=6,max_mr_size=549755813888,max_pd=65536,\
                 max_qp_rd_atom=126,max_qp_init_rd_atom=126,max_srq_sge=6,max_inline=96,\
                 max_mw=0,no_atomics,no_cq_resize",
        sources: "hw/bnxt_re: bnxt_re_query_device and bnxt_re_test_qp_limits in ib_verbs.c, \
                  bnxt_qplib_get_dev_attr in qplib_sp.c, BNXT_QPLIB_MAX_OUT_RD_ATOM in \
                  qplib_sp.h, bnxt_re_dev_ops in main.c; rdma-core: BNXT_RE_MAX_INLINE_SIZE \
                  in providers/bnxt_re/bnxt_re-abi.h",
        note: "firmware reports the queue sizes and counts, which are left out, the segments \
               of an SRQ (chosen: those of a QP), the inline size (chosen: rdma-core's), and \
               whether there are atomics (chosen: none). It reports windows, but the driver \
               has no alloc_mw",
    },
    Profile {
        name: "hns",
        device: "HiSilicon HIP08, RoCE v2",
        limits: "max_qp=4096,max_qp_wr=32768,max_sge=64,max_sge_rd=64,max_cq=1048576,\
                 max_cqe=4194304,max_mr=1048576,max_pd=16777216,max_qp_rd_atom=128,\
                 max_qp_init_rd_atom=128,max_srq=1048576,max_srq_wr=32768,max_srq_sge=64,\
                 max_inline=32,max_mw=0,no_cq_resize",
        sources: "hw/hns: hns_roce_query_device and hns_roce_dev_ops in hns_roce_main.c, \
                  set_default_caps in hns_roce_hw_v2.c, HNS_ROCE_V2_MAX_* in hns_roce_hw_v2.h",
        note: "the driver's defaults; firmware may report others. It reports no \
               windows, though hns_roce_dev_mw_ops has them",
    },
    Profile {
        name: "qedr",
        device: "Marvell (QLogic) FastLinQ 4xxxx, RoCE",
        limits: "max_qp_wr=32767,max_sge=4,max_sge_rd=4,max_cqe=8388480,\
                 max_mr_size=1099511627776,max_pd=65536,max_qp_rd_atom=32,\
                 max_qp_init_rd_atom=32,max_srq=32768,max_srq_wr=32767,max_srq_sge=4,\
                 max_inline=256,max_mw=0,no_atomics,no_cq_resize",
        sources: "hw/qedr: qedr_query_device, qedr_check_qp_attrs and qedr_check_srq_params in \
                  verbs.c, qedr_set_device_attr and qedr_dev_ops in main.c, QEDR_MAX_CQES in \
                  qedr.h; net/ethernet/qlogic/qed: qed_rdma_init_devinfo in qed_rdma.c, \
                  qed_rdma.h; include/linux/qed: rdma_common.h, roce_common.h",
        note: "Linux 6.1 reports max_srq_sge=0, which qedr_set_device_attr does not set; chosen: \
               the value the check compares with. Atomics depend on the PCIe root port; chosen: \
               none. The number of SRQs is the maximum",
    },
    Profile {
        name: "qedr-iwarp",
        device: "Marvell (QLogic) FastLinQ 4xxxx, iWARP",
        limits: "max_qp_wr=32767,max_sge=4,max_sge_rd=4,max_cqe=8388480,\
                 max_mr_size=1099511627776,max_pd=65536,max_qp_rd_atom=32,\
                 max_qp_init_rd_atom=32,max_srq=32768,max_srq_wr=32767,max_srq_sge=4,\
                 max_inline=128,max_mw=0,no_atomics,no_cq_resize",
        sources: "as qedr; net/ethernet/qlogic/qed: qed_iwarp_init_devinfo in qed_iwarp.c; \
                  include/linux/qed/iwarp_common.h",
        note: "limits only, as irdma-iwarp",
    },
    Profile {
        name: "cxgb4",
        device: "Chelsio T5, iWARP",
        limits: "max_qp_wr=8190,max_sge=4,max_sge_rd=1,max_cqe=65518,max_pd=65536,\
                 max_qp_rd_atom=8,max_qp_init_rd_atom=8,max_inline=280,max_mw=0,no_srq,\
                 no_atomics,no_cq_resize",
        sources: "hw/cxgb4: c4iw_query_device and c4iw_dev_ops in provider.c, c4iw_create_qp in \
                  qp.c, c4iw_uld_add and c4iw_alloc in device.c, T4_MAX_* in t4.h",
        note: "firmware reports the read depth (chosen: the fallback of cxgb4_main.c) \
               and the number of SRQs, which only T6 has; numbers of QPs and CQs are left out. \
               One status entry (sge_egrstatuspagesize 64) is assumed. The driver refuses long \
               queues with E2BIG, the emulated device with EINVAL. Limits only, as irdma-iwarp",
    },
    Profile {
        name: "erdma",
        device: "Alibaba Elastic RDMA, iWARP",
        limits: "max_qp_wr=8192,max_sge=1,max_sge_rd=1,max_pd=131072,max_qp_rd_atom=128,\
                 max_qp_init_rd_atom=128,max_inline=96,max_mw=0,no_srq,no_atomics,\
                 no_cq_resize",
        sources: "hw/erdma: erdma_query_device and erdma_qp_validate_cap in erdma_verbs.c, \
                  erdma_dev_attrs_init and erdma_device_ops in erdma_main.c, ERDMA_MAX_* in \
                  erdma_verbs.h",
        note: "the device sends up to 6 segments and receives into one; the smaller is reported. \
               It reports windows, but the driver has no alloc_mw. Sizes and counts from the \
               device are left out. Limits only, as irdma-iwarp",
    },
    Profile {
        name: "siw",
        device: "Soft-iWARP of Linux",
        limits: "max_qp=102400,max_qp_wr=32768,max_sge=6,max_sge_rd=1,max_cq=102400,\
                 max_cqe=3276800,max_mr=1024000,max_pd=102400,max_qp_rd_atom=128,\
                 max_qp_init_rd_atom=128,max_srq=102400,max_srq_wr=327680,max_srq_sge=6,\
                 max_inline=80,max_mw=0,no_atomics,no_cq_resize",
        sources: "sw/siw: siw_query_device and siw_create_qp in siw_verbs.c, siw_device_ops in \
                  siw_main.c, SIW_MAX_* in siw.h; include/uapi/rdma/siw-abi.h",
        note: "limits only, as irdma-iwarp",
    },
    Profile {
        name: "rxe",
        device: "Soft-RoCE of Linux",
        limits: "max_qp=1048560,max_qp_wr=1048576,max_sge=32,max_sge_rd=32,max_cq=1048576,\
                 max_cqe=32767,max_mr=524287,max_pd=1048576,max_qp_rd_atom=128,\
                 max_qp_init_rd_atom=128,max_mw=524287,max_srq=917503,max_srq_wr=1048576,\
                 max_srq_sge=27,max_inline=512",
        sources: "sw/rxe: rxe_init_device_param in rxe.c, enum rxe_device_param in rxe_param.h, \
                  rxe_qp_chk_cap in rxe_qp.c",
        note: "",
    },
    Profile {
        name: "hfi1",
        device: "Intel Omni-Path 100, verbs",
        limits: "max_qp=32768,max_qp_wr=16383,max_sge=96,max_sge_rd=96,max_cq=131071,\
                 max_cqe=3145727,max_pd=65535,max_qp_rd_atom=16,max_qp_init_rd_atom=255,\
                 max_srq=1024,max_srq_wr=131071,max_srq_sge=128,max_inline=0,max_mw=0",
        sources: "hw/hfi1: hfi1_fill_device_attr and the module parameters hfi1_max_* in \
                  verbs.c; sw/rdmavt: rvt_create_qp in qp.c, rvt_dev_ops in vt.c",
        note: "the driver does not refuse inline data but grants 0 bytes",
    },
    Profile {
        name: "vmw_pvrdma",
        device: "VMware paravirtual RDMA",
        limits: "max_inline=0,max_mw=0,no_cq_resize",
        sources: "hw/vmw_pvrdma: pvrdma_create_qp in pvrdma_qp.c, pvrdma_dev_ops in \
                  pvrdma_main.c",
        note: "the hypervisor reports all other limits, which are left out. The driver does not \
               refuse inline data but grants 0 bytes",
    },
    Profile {
        name: "mana",
        device: "Microsoft Azure MANA",
        limits: "max_inline=0,max_mw=0,no_srq,no_atomics,no_cq_resize",
        sources: "hw/mana: mana_ib_query_device in main.c (commit 1440bdbd9c4e), \
                  mana_ib_dev_ops in device.c (commit 06d074298583); rdma-core: providers/mana",
        note: "newer than Linux 6.1. The device reports all other limits, which are left out. \
               rdma-core's provider has no code for inline data",
    },
    Profile {
        name: "least",
        device: "no real device: the minimum on which endpoints work",
        limits: "max_qp_wr=64,max_sge=1,max_sge_rd=1,max_cqe=255,max_qp_rd_atom=0,\
                 max_qp_init_rd_atom=0,max_inline=0,max_mw=0,no_srq,no_atomics,no_cq_resize",
        sources: "invented",
        note: "",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_can_be_selected_and_names_its_sources() {
        assert!(PROFILES.len() > 12);
        for profile in PROFILES {
            let chosen: Limits = format!("profile:{}", profile.name).parse().unwrap();
            assert_ne!(chosen, Limits::DEVICE, "{}", profile.name);
            assert!(!profile.sources.is_empty(), "{}", profile.name);
            let same = PROFILES.iter().filter(|it| it.name == profile.name);
            assert_eq!(same.count(), 1, "{}", profile.name);
            let text = profile.describe();
            assert!(text.lines().all(|line| line.len() <= 100), "{text}");
            assert!(
                text.contains(&format!("profile:{}", profile.name)),
                "{text}"
            );
        }
    }

    #[test]
    fn limits_beyond_the_emulated_device_are_capped_and_reported() {
        let limits: Limits = "profile:siw".parse().unwrap();
        assert_eq!(
            limits.to_string(),
            "max_sge=6,max_sge_rd=1,max_cqe=3276800,max_mr=1024000,max_mw=0,max_srq_sge=6,\
             max_inline=80,no_cq_resize,no_atomics"
        );
        let text = Profile::find("siw").unwrap().describe();
        let reports = text.split("reports").nth(1).unwrap();
        assert!(reports.contains("max_qp_rd_atom=128"), "{text}");
        assert!(reports.contains("max_srq=102400"), "{text}");
        assert!(!reports.contains("max_cqe=3276800"), "{text}");
    }

    #[test]
    fn limits_after_a_profile_override_it() {
        let limits: Limits = "profile:rxe,max_sge=2,no_srq".parse().unwrap();
        assert_eq!((limits.max_sge, limits.max_srq), (2, 0));
        assert_eq!(limits.max_inline, 512);
        let error = "profile:mlx9".parse::<Limits>().unwrap_err().to_string();
        assert!(error.contains("expected one of irdma-roce, "), "{error}");
    }
}
