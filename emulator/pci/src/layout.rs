//! Where the fields of the device's structures are: those that this device reads or writes, with
//! the names of the programmer's reference manual and of Linux's `mlx5_ifc.h`.

use crate::bits::Field;

macro_rules! fields {
    ($($name:ident: $bit:literal, $width:literal;)+) => {
        $(
            #[allow(missing_docs)]
            pub const $name: Field = Field::new($bit, $width);
        )+
    };
}

/// `command_in`: the head of every command, 16 bytes.
pub mod command_in {
    use super::Field;

    fields! {
        OPCODE: 0x0, 16;
        OP_MOD: 0x30, 16;
    }
}

/// `eqc`: an event queue, 64 bytes.
pub mod eqc {
    use super::Field;

    fields! {
        PAGE_OFFSET: 0x54, 6;
        LOG_EQ_SIZE: 0x63, 5;
        INTR: 0xb4, 12;
        LOG_PAGE_SIZE: 0xc3, 5;
        PRODUCER_COUNTER: 0x168, 24;
    }
}

/// `create_eq_in`: CREATE_EQ; `eqc` at 16, pages at 272.
pub mod create_eq_in {
    use super::Field;

    fields! {
        EVENT_BITMASK: 0x2c0, 64;
    }
}

/// `cqc`: a completion queue, 64 bytes.
pub mod cqc {
    use super::Field;

    fields! {
        CQE_SZ: 0x8, 3;
        OI: 0xe, 1;
        PAGE_OFFSET: 0x54, 6;
        LOG_CQ_SIZE: 0x63, 5;
        UAR_PAGE: 0x68, 24;
        C_EQN_OR_APU_ELEMENT: 0xa0, 32;
        LOG_PAGE_SIZE: 0xc3, 5;
        DBR_ADDR: 0x1c0, 64;
    }
}

/// `modify_cq_in`: MODIFY_CQ; `cqc` at 16, pages at 272.
pub mod modify_cq_in {
    use super::Field;

    fields! {
        MODIFY_FIELD_SELECT_RESIZE_FIELD_SELECT: 0x60, 32;
    }
}

/// `qpc`: a queue pair, 232 bytes; the path (`ads`) at 24.
pub mod qpc {
    use super::Field;

    fields! {
        STATE: 0x0, 4;
        ST: 0x8, 8;
        PM_STATE: 0x13, 2;
        WQ_SIGNATURE: 0x20, 1;
        PD: 0x28, 24;
        MTU: 0x40, 3;
        LOG_RQ_SIZE: 0x49, 4;
        LOG_RQ_STRIDE: 0x4d, 3;
        NO_SQ: 0x50, 1;
        LOG_SQ_SIZE: 0x51, 4;
        UAR_PAGE: 0x68, 24;
        USER_INDEX: 0x88, 24;
        LOG_PAGE_SIZE: 0xa3, 5;
        REMOTE_QPN: 0xa8, 24;
        LOG_SRA_MAX: 0x388, 3;
        RETRY_COUNT: 0x38d, 3;
        RNR_RETRY: 0x390, 3;
        NEXT_SEND_PSN: 0x3c8, 24;
        CQN_SND: 0x3e8, 24;
        LOG_RRA_MAX: 0x488, 3;
        RRE: 0x490, 1;
        RWE: 0x491, 1;
        RAE: 0x492, 1;
        PAGE_OFFSET: 0x494, 6;
        MIN_RNR_NAK: 0x4a3, 5;
        NEXT_RCV_PSN: 0x4a8, 24;
        CQN_RCV: 0x4e8, 24;
        DBR_ADDR: 0x500, 64;
        Q_KEY: 0x540, 32;
        RQ_TYPE: 0x565, 3;
        SRQN_RMPN_XRQN: 0x568, 24;
        CS_REQ: 0x630, 8;
        CS_RES: 0x638, 8;
    }
}

/// `ads`: an address path, 44 bytes; the GID at 16.
pub mod ads {
    use super::Field;

    fields! {
        PKEY_INDEX: 0x10, 16;
        GRH: 0x28, 1;
        MLID: 0x29, 7;
        RLID: 0x30, 16;
        ACK_TIMEOUT: 0x40, 5;
        SRC_ADDR_INDEX: 0x48, 8;
        STAT_RATE: 0x54, 4;
        HOP_LIMIT: 0x58, 8;
        TCLASS: 0x64, 8;
        FLOW_LABEL: 0x6c, 20;
        SL: 0x124, 4;
        VHCA_PORT_NUM: 0x128, 8;
    }
}

/// `modify_qp_in`: the commands that change a queue pair; `qpc` at 24.
pub mod modify_qp_in {
    use super::Field;

    fields! {
        OPT_PARAM_MASK: 0x80, 32;
    }
}

/// `mkc`: a memory key, 64 bytes.
pub mod mkc {
    use super::Field;

    fields! {
        FREE: 0x1, 1;
        ACCESS_MODE_4_2: 0x3, 3;
        A: 0x11, 1;
        RW: 0x12, 1;
        RR: 0x13, 1;
        LW: 0x14, 1;
        ACCESS_MODE_1_0: 0x16, 2;
        MKEY_7_0: 0x38, 8;
        LENGTH64: 0x60, 1;
        EN_RINVAL: 0x67, 1;
        PD: 0x68, 24;
        START_ADDR: 0x80, 64;
        LEN: 0xc0, 64;
        TRANSLATIONS_OCTWORD_SIZE: 0x1a0, 32;
        LOG_PAGE_SIZE: 0x1db, 5;
    }
}

/// `create_mkey_in`: CREATE_MKEY; `mkc` at 16, pages at 272.
pub mod create_mkey_in {
    use super::Field;

    fields! {
        TRANSLATIONS_OCTWORD_ACTUAL_SIZE: 0x300, 32;
    }
}

/// `wq`: a work queue in an `rmpc`, 192 bytes; pages behind it.
pub mod wq {
    use super::Field;

    fields! {
        PAGE_OFFSET: 0x2b, 5;
        LWM: 0x30, 16;
        PD: 0x48, 24;
        UAR_PAGE: 0x68, 24;
        DBR_ADDR: 0x80, 64;
        LOG_WQ_STRIDE: 0x10c, 4;
        LOG_WQ_PG_SZ: 0x113, 5;
        LOG_WQ_SZ: 0x11b, 5;
    }
}

/// `rmpc`: a receive memory pool, 240 bytes; `wq` at 48.
pub mod rmpc {
    use super::Field;

    fields! {
        STATE: 0x8, 4;
    }
}

/// `sqc`: a send queue, 240 bytes; `wq` at 48.
pub mod sqc {
    use super::Field;

    fields! {
        STATE: 0x8, 4;
        CQN: 0x48, 24;
    }
}

/// `xrc_srqc`: an XRC shared receive queue, 64 bytes.
pub mod xrc_srqc {
    use super::Field;

    fields! {
        LOG_XRC_SRQ_SIZE: 0x4, 4;
        LOG_RQ_STRIDE: 0x25, 3;
        PAGE_OFFSET: 0x40, 6;
        LOG_PAGE_SIZE: 0x82, 6;
        PD: 0xc8, 24;
        LWM: 0xe0, 16;
        DB_RECORD_ADDR_H: 0x140, 32;
        DB_RECORD_ADDR_L: 0x160, 30;
    }
}

/// `hca_vport_context`: the port of the function, 512 bytes.
pub mod hca_vport_context {
    use super::Field;

    fields! {
        PORT_PHYSICAL_STATE: 0x110, 4;
        PORT_STATE: 0x118, 4;
        VPORT_STATE: 0x11c, 4;
        SYSTEM_IMAGE_GUID: 0x140, 64;
        PORT_GUID: 0x180, 64;
        NODE_GUID: 0x1c0, 64;
        CAP_MASK1: 0x200, 32;
        CAP_MASK1_FIELD_SELECT: 0x220, 32;
        LID: 0x300, 16;
        SUBNET_TIMEOUT: 0x31b, 5;
        SM_LID: 0x320, 16;
    }
}

/// `access_register_in`: ACCESS_REGISTER; the register at 16.
pub mod access_register_in {
    use super::Field;

    fields! {
        REGISTER_ID: 0x50, 16;
    }
}

/// `query_hca_vport_gid_out`: QUERY_HCA_VPORT_GID; the GIDs at 16.
pub mod query_hca_vport_gid_out {
    use super::Field;

    fields! {
        GIDS_NUM: 0x60, 16;
    }
}

/// `query_issi_out`: QUERY_ISSI.
pub mod query_issi_out {
    use super::Field;

    fields! {
        SUPPORTED_ISSI_DW0: 0x360, 32;
    }
}

/// `query_special_contexts_out`: QUERY_SPECIAL_CONTEXTS.
pub mod query_special_contexts_out {
    use super::Field;

    fields! {
        RESD_LKEY: 0x60, 32;
    }
}

/// `query_vport_state_out`: QUERY_VPORT_STATE.
pub mod query_vport_state_out {
    use super::Field;

    fields! {
        ADMIN_STATE: 0x78, 4;
        STATE: 0x7c, 4;
    }
}

/// `ptys_reg`: port type and speed, 64 bytes.
pub mod ptys_reg {
    use super::Field;

    fields! {
        PROTO_MASK: 0x1d, 3;
        IB_LINK_WIDTH_CAPABILITY: 0x80, 16;
        IB_PROTO_CAPABILITY: 0x90, 16;
        IB_LINK_WIDTH_ADMIN: 0xe0, 16;
        IB_PROTO_ADMIN: 0xf0, 16;
        IB_LINK_WIDTH_OPER: 0x140, 16;
        IB_PROTO_OPER: 0x150, 16;
    }
}

/// `pmtu_reg`: port MTU, 16 bytes.
pub mod pmtu_reg {
    use super::Field;

    fields! {
        MAX_MTU: 0x20, 16;
        ADMIN_MTU: 0x40, 16;
        OPER_MTU: 0x60, 16;
    }
}

/// `pvlc_reg`: virtual lanes, 16 bytes.
pub mod pvlc_reg {
    use super::Field;

    fields! {
        VL_HW_CAP: 0x3c, 4;
        VL_ADMIN: 0x5c, 4;
        VL_OPERATIONAL: 0x7c, 4;
    }
}

/// `hca_cap`: capabilities of the device, 4096 bytes.
pub mod hca_cap {
    use super::Field;

    fields! {
        LOG_MAX_SRQ_SZ: 0x80, 8;
        LOG_MAX_QP_SZ: 0x88, 8;
        LOG_MAX_QP: 0x9b, 5;
        LOG_MAX_SRQ: 0xab, 5;
        LOG_MAX_CQ_SZ: 0xc8, 8;
        LOG_MAX_CQ: 0xdb, 5;
        LOG_MAX_EQ_SZ: 0xe0, 8;
        LOG_MAX_MKEY: 0xea, 6;
        LOG_MAX_EQ: 0xfc, 4;
        MAX_INDIRECTION: 0x100, 8;
        FIXED_BUFFER_SIZE: 0x108, 1;
        LOG_MAX_MRW_SZ: 0x109, 7;
        LOG_MAX_BSF_LIST_SIZE: 0x112, 6;
        LOG_MAX_KLM_LIST_SIZE: 0x11a, 6;
        LOG_MAX_RA_REQ_QP: 0x14a, 6;
        LOG_MAX_RA_RES_QP: 0x15a, 6;
        CC_QUERY_ALLOWED: 0x161, 1;
        CC_MODIFY_ALLOWED: 0x162, 1;
        GID_TABLE_SIZE: 0x170, 16;
        MAX_QP_CNT: 0x186, 10;
        PKEY_TABLE_SIZE: 0x190, 16;
        IB_VIRT: 0x1a2, 1;
        VPORT_COUNTERS: 0x181, 1;
        LOCAL_CA_ACK_DELAY: 0x1ab, 5;
        PORT_TYPE: 0x1b6, 2;
        NUM_PORTS: 0x1b8, 8;
        LOG_MAX_MSG: 0x1c3, 5;
        STAT_RATE_SUPPORT: 0x1e0, 16;
        CQE_VERSION: 0x1fc, 4;
        UMR_MODIFY_ENTITY_SIZE_DISABLED: 0x207, 1;
        UMR_MODIFY_ATOMIC_DISABLED: 0x208, 1;
        UMR_INDIRECT_MKEY_DISABLED: 0x209, 1;
        WQ_SIGNATURE: 0x214, 1;
        SCTR_DATA_CQE: 0x215, 1;
        ATOMIC: 0x21e, 1;
        CQ_OI: 0x220, 1;
        CQ_RESIZE: 0x221, 1;
        CQ_MODERATION: 0x222, 1;
        BLOCK_LB_MC: 0x228, 1;
        SCQE_BREAK_MODERATION: 0x22a, 1;
        IMAICL: 0x231, 1;
        QKV: 0x236, 1;
        PKV: 0x237, 1;
        SET_DETH_SQPN: 0x238, 1;
        XRC: 0x23c, 1;
        UD: 0x23d, 1;
        UC: 0x23e, 1;
        RC: 0x23f, 1;
        LOG_PG_SZ: 0x258, 8;
        BF: 0x260, 1;
        LOG_BF_REG_SIZE: 0x26b, 5;
        MAX_WQE_SZ_SQ: 0x290, 16;
        MAX_WQE_SZ_RQ: 0x2b0, 16;
        MAX_QP_MCG: 0x2e7, 25;
        LOG_MAX_MCG: 0x318, 8;
        LOG_MAX_TRANSPORT_DOMAIN: 0x323, 5;
        LOG_MAX_PD: 0x32b, 5;
        LOG_MAX_XRCD: 0x33b, 5;
        LOG_MAX_RQ: 0x363, 5;
        LOG_MAX_SQ: 0x36b, 5;
        LOG_MAX_RMP: 0x383, 5;
        MAX_NUM_EQS: 0x470, 16;
        LOG_UAR_PAGE_SZ: 0x490, 16;
        DEVICE_FREQUENCY_KHZ: 0x4e0, 32;
        LOG_MAX_WQ_SZ: 0x3db, 5;
        CQE_128_ALWAYS: 0x5bd, 1;
    }
}
