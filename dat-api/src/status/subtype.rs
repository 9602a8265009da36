//! The subtypes of a DAT return (`enum dat_return_subtype`, `dat/dat_error.h`).

/// The detail: bits 0 to 15 of a `DAT_RETURN`. One counter for all types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Subtype {
    /// `DAT_NO_SUBTYPE`
    NoSubtype = 0,
    /// `DAT_SUB_INTERRUPTED`
    SubInterrupted = 1,
    /// `DAT_RESOURCE_MEMORY`
    ResourceMemory = 2,
    /// `DAT_RESOURCE_DEVICE`
    ResourceDevice = 3,
    /// `DAT_RESOURCE_TEP`
    ResourceTep = 4,
    /// `DAT_RESOURCE_TEVD`
    ResourceTevd = 5,
    /// `DAT_RESOURCE_PROTECTION_DOMAIN`
    ResourceProtectionDomain = 6,
    /// `DAT_RESOURCE_MEMORY_REGION`
    ResourceMemoryRegion = 7,
    /// `DAT_RESOURCE_ERROR_HANDLER`
    ResourceErrorHandler = 8,
    /// `DAT_RESOURCE_CREDITS`
    ResourceCredits = 9,
    /// `DAT_RESOURCE_SRQ`
    ResourceSrq = 10,
    /// `DAT_INVALID_HANDLE_IA`
    InvalidHandleIa = 11,
    /// `DAT_INVALID_HANDLE_EP`
    InvalidHandleEp = 12,
    /// `DAT_INVALID_HANDLE_LMR`
    InvalidHandleLmr = 13,
    /// `DAT_INVALID_HANDLE_RMR`
    InvalidHandleRmr = 14,
    /// `DAT_INVALID_HANDLE_PZ`
    InvalidHandlePz = 15,
    /// `DAT_INVALID_HANDLE_PSP`
    InvalidHandlePsp = 16,
    /// `DAT_INVALID_HANDLE_RSP`
    InvalidHandleRsp = 17,
    /// `DAT_INVALID_HANDLE_CR`
    InvalidHandleCr = 18,
    /// `DAT_INVALID_HANDLE_CNO`
    InvalidHandleCno = 19,
    /// `DAT_INVALID_HANDLE_EVD_CR`
    InvalidHandleEvdCr = 20,
    /// `DAT_INVALID_HANDLE_EVD_REQUEST`
    InvalidHandleEvdRequest = 21,
    /// `DAT_INVALID_HANDLE_EVD_RECV`
    InvalidHandleEvdRecv = 22,
    /// `DAT_INVALID_HANDLE_EVD_CONN`
    InvalidHandleEvdConn = 23,
    /// `DAT_INVALID_HANDLE_EVD_ASYNC`
    InvalidHandleEvdAsync = 24,
    /// `DAT_INVALID_HANDLE_SRQ`
    InvalidHandleSrq = 25,
    /// `DAT_INVALID_HANDLE1`
    InvalidHandle1 = 26,
    /// `DAT_INVALID_HANDLE2`
    InvalidHandle2 = 27,
    /// `DAT_INVALID_HANDLE3`
    InvalidHandle3 = 28,
    /// `DAT_INVALID_HANDLE4`
    InvalidHandle4 = 29,
    /// `DAT_INVALID_HANDLE5`
    InvalidHandle5 = 30,
    /// `DAT_INVALID_HANDLE6`
    InvalidHandle6 = 31,
    /// `DAT_INVALID_HANDLE7`
    InvalidHandle7 = 32,
    /// `DAT_INVALID_HANDLE8`
    InvalidHandle8 = 33,
    /// `DAT_INVALID_HANDLE9`
    InvalidHandle9 = 34,
    /// `DAT_INVALID_HANDLE10`
    InvalidHandle10 = 35,
    /// `DAT_INVALID_ARG1`
    InvalidArg1 = 36,
    /// `DAT_INVALID_ARG2`
    InvalidArg2 = 37,
    /// `DAT_INVALID_ARG3`
    InvalidArg3 = 38,
    /// `DAT_INVALID_ARG4`
    InvalidArg4 = 39,
    /// `DAT_INVALID_ARG5`
    InvalidArg5 = 40,
    /// `DAT_INVALID_ARG6`
    InvalidArg6 = 41,
    /// `DAT_INVALID_ARG7`
    InvalidArg7 = 42,
    /// `DAT_INVALID_ARG8`
    InvalidArg8 = 43,
    /// `DAT_INVALID_ARG9`
    InvalidArg9 = 44,
    /// `DAT_INVALID_ARG10`
    InvalidArg10 = 45,
    /// `DAT_INVALID_STATE_EP_UNCONNECTED`
    InvalidStateEpUnconnected = 46,
    /// `DAT_INVALID_STATE_EP_ACTCONNPENDING`
    InvalidStateEpActconnpending = 47,
    /// `DAT_INVALID_STATE_EP_PASSCONNPENDING`
    InvalidStateEpPassconnpending = 48,
    /// `DAT_INVALID_STATE_EP_TENTCONNPENDING`
    InvalidStateEpTentconnpending = 49,
    /// `DAT_INVALID_STATE_EP_CONNECTED`
    InvalidStateEpConnected = 50,
    /// `DAT_INVALID_STATE_EP_DISCONNECTED`
    InvalidStateEpDisconnected = 51,
    /// `DAT_INVALID_STATE_EP_RESERVED`
    InvalidStateEpReserved = 52,
    /// `DAT_INVALID_STATE_EP_COMPLPENDING`
    InvalidStateEpComplpending = 53,
    /// `DAT_INVALID_STATE_EP_DISCPENDING`
    InvalidStateEpDiscpending = 54,
    /// `DAT_INVALID_STATE_EP_PROVIDERCONTROL`
    InvalidStateEpProvidercontrol = 55,
    /// `DAT_INVALID_STATE_EP_NOTREADY`
    InvalidStateEpNotready = 56,
    /// `DAT_INVALID_STATE_EP_RECV_WATERMARK`
    InvalidStateEpRecvWatermark = 57,
    /// `DAT_INVALID_STATE_EP_PZ`
    InvalidStateEpPz = 58,
    /// `DAT_INVALID_STATE_EP_EVD_REQUEST`
    InvalidStateEpEvdRequest = 59,
    /// `DAT_INVALID_STATE_EP_EVD_RECV`
    InvalidStateEpEvdRecv = 60,
    /// `DAT_INVALID_STATE_EP_EVD_CONNECT`
    InvalidStateEpEvdConnect = 61,
    /// `DAT_INVALID_STATE_EP_UNCONFIGURED`
    InvalidStateEpUnconfigured = 62,
    /// `DAT_INVALID_STATE_EP_UNCONFRESERVED`
    InvalidStateEpUnconfreserved = 63,
    /// `DAT_INVALID_STATE_EP_UNCONFPASSIVE`
    InvalidStateEpUnconfpassive = 64,
    /// `DAT_INVALID_STATE_EP_UNCONFTENTATIVE`
    InvalidStateEpUnconftentative = 65,
    /// `DAT_INVALID_STATE_CNO_IN_USE`
    InvalidStateCnoInUse = 66,
    /// `DAT_INVALID_STATE_CNO_DEAD`
    InvalidStateCnoDead = 67,
    /// `DAT_INVALID_STATE_EVD_OPEN`
    InvalidStateEvdOpen = 68,
    /// `DAT_INVALID_STATE_EVD_ENABLED`
    InvalidStateEvdEnabled = 69,
    /// `DAT_INVALID_STATE_EVD_DISABLED`
    InvalidStateEvdDisabled = 70,
    /// `DAT_INVALID_STATE_EVD_WAITABLE`
    InvalidStateEvdWaitable = 71,
    /// `DAT_INVALID_STATE_EVD_UNWAITABLE`
    InvalidStateEvdUnwaitable = 72,
    /// `DAT_INVALID_STATE_EVD_IN_USE`
    InvalidStateEvdInUse = 73,
    /// `DAT_INVALID_STATE_EVD_CONFIG_NOTIFY`
    InvalidStateEvdConfigNotify = 74,
    /// `DAT_INVALID_STATE_EVD_CONFIG_SOLICITED`
    InvalidStateEvdConfigSolicited = 75,
    /// `DAT_INVALID_STATE_EVD_CONFIG_THRESHOLD`
    InvalidStateEvdConfigThreshold = 76,
    /// `DAT_INVALID_STATE_EVD_WAITER`
    InvalidStateEvdWaiter = 77,
    /// `DAT_INVALID_STATE_EVD_ASYNC`
    InvalidStateEvdAsync = 78,
    /// `DAT_INVALID_STATE_IA_IN_USE`
    InvalidStateIaInUse = 79,
    /// `DAT_INVALID_STATE_LMR_IN_USE`
    InvalidStateLmrInUse = 80,
    /// `DAT_INVALID_STATE_LMR_FREE`
    InvalidStateLmrFree = 81,
    /// `DAT_INVALID_STATE_PZ_IN_USE`
    InvalidStatePzInUse = 82,
    /// `DAT_INVALID_STATE_PZ_FREE`
    InvalidStatePzFree = 83,
    /// `DAT_INVALID_STATE_SRQ_OPERATIONAL`
    InvalidStateSrqOperational = 84,
    /// `DAT_INVALID_STATE_SRQ_ERROR`
    InvalidStateSrqError = 85,
    /// `DAT_INVALID_STATE_SRQ_IN_USE`
    InvalidStateSrqInUse = 86,
    /// `DAT_PRIVILEGES_READ`
    PrivilegesRead = 87,
    /// `DAT_PRIVILEGES_WRITE`
    PrivilegesWrite = 88,
    /// `DAT_PRIVILEGES_RDMA_READ`
    PrivilegesRdmaRead = 89,
    /// `DAT_PRIVILEGES_RDMA_WRITE`
    PrivilegesRdmaWrite = 90,
    /// `DAT_PROTECTION_READ`
    ProtectionRead = 91,
    /// `DAT_PROTECTION_WRITE`
    ProtectionWrite = 92,
    /// `DAT_PROTECTION_RDMA_READ`
    ProtectionRdmaRead = 93,
    /// `DAT_PROTECTION_RDMA_WRITE`
    ProtectionRdmaWrite = 94,
    /// `DAT_INVALID_ADDRESS_UNSUPPORTED`
    InvalidAddressUnsupported = 95,
    /// `DAT_INVALID_ADDRESS_UNREACHABLE`
    InvalidAddressUnreachable = 96,
    /// `DAT_INVALID_ADDRESS_MALFORMED`
    InvalidAddressMalformed = 97,
    /// `DAT_NAME_NOT_REGISTERED`
    NameNotRegistered = 98,
    /// `DAT_MAJOR_NOT_FOUND`
    MajorNotFound = 99,
    /// `DAT_MINOR_NOT_FOUND`
    MinorNotFound = 100,
    /// `DAT_THREAD_SAFETY_NOT_FOUND`
    ThreadSafetyNotFound = 101,
}

impl Subtype {
    /// Every value, in the order of the header.
    pub const ALL: [Self; 102] = [
        Self::NoSubtype,
        Self::SubInterrupted,
        Self::ResourceMemory,
        Self::ResourceDevice,
        Self::ResourceTep,
        Self::ResourceTevd,
        Self::ResourceProtectionDomain,
        Self::ResourceMemoryRegion,
        Self::ResourceErrorHandler,
        Self::ResourceCredits,
        Self::ResourceSrq,
        Self::InvalidHandleIa,
        Self::InvalidHandleEp,
        Self::InvalidHandleLmr,
        Self::InvalidHandleRmr,
        Self::InvalidHandlePz,
        Self::InvalidHandlePsp,
        Self::InvalidHandleRsp,
        Self::InvalidHandleCr,
        Self::InvalidHandleCno,
        Self::InvalidHandleEvdCr,
        Self::InvalidHandleEvdRequest,
        Self::InvalidHandleEvdRecv,
        Self::InvalidHandleEvdConn,
        Self::InvalidHandleEvdAsync,
        Self::InvalidHandleSrq,
        Self::InvalidHandle1,
        Self::InvalidHandle2,
        Self::InvalidHandle3,
        Self::InvalidHandle4,
        Self::InvalidHandle5,
        Self::InvalidHandle6,
        Self::InvalidHandle7,
        Self::InvalidHandle8,
        Self::InvalidHandle9,
        Self::InvalidHandle10,
        Self::InvalidArg1,
        Self::InvalidArg2,
        Self::InvalidArg3,
        Self::InvalidArg4,
        Self::InvalidArg5,
        Self::InvalidArg6,
        Self::InvalidArg7,
        Self::InvalidArg8,
        Self::InvalidArg9,
        Self::InvalidArg10,
        Self::InvalidStateEpUnconnected,
        Self::InvalidStateEpActconnpending,
        Self::InvalidStateEpPassconnpending,
        Self::InvalidStateEpTentconnpending,
        Self::InvalidStateEpConnected,
        Self::InvalidStateEpDisconnected,
        Self::InvalidStateEpReserved,
        Self::InvalidStateEpComplpending,
        Self::InvalidStateEpDiscpending,
        Self::InvalidStateEpProvidercontrol,
        Self::InvalidStateEpNotready,
        Self::InvalidStateEpRecvWatermark,
        Self::InvalidStateEpPz,
        Self::InvalidStateEpEvdRequest,
        Self::InvalidStateEpEvdRecv,
        Self::InvalidStateEpEvdConnect,
        Self::InvalidStateEpUnconfigured,
        Self::InvalidStateEpUnconfreserved,
        Self::InvalidStateEpUnconfpassive,
        Self::InvalidStateEpUnconftentative,
        Self::InvalidStateCnoInUse,
        Self::InvalidStateCnoDead,
        Self::InvalidStateEvdOpen,
        Self::InvalidStateEvdEnabled,
        Self::InvalidStateEvdDisabled,
        Self::InvalidStateEvdWaitable,
        Self::InvalidStateEvdUnwaitable,
        Self::InvalidStateEvdInUse,
        Self::InvalidStateEvdConfigNotify,
        Self::InvalidStateEvdConfigSolicited,
        Self::InvalidStateEvdConfigThreshold,
        Self::InvalidStateEvdWaiter,
        Self::InvalidStateEvdAsync,
        Self::InvalidStateIaInUse,
        Self::InvalidStateLmrInUse,
        Self::InvalidStateLmrFree,
        Self::InvalidStatePzInUse,
        Self::InvalidStatePzFree,
        Self::InvalidStateSrqOperational,
        Self::InvalidStateSrqError,
        Self::InvalidStateSrqInUse,
        Self::PrivilegesRead,
        Self::PrivilegesWrite,
        Self::PrivilegesRdmaRead,
        Self::PrivilegesRdmaWrite,
        Self::ProtectionRead,
        Self::ProtectionWrite,
        Self::ProtectionRdmaRead,
        Self::ProtectionRdmaWrite,
        Self::InvalidAddressUnsupported,
        Self::InvalidAddressUnreachable,
        Self::InvalidAddressMalformed,
        Self::NameNotRegistered,
        Self::MajorNotFound,
        Self::MinorNotFound,
        Self::ThreadSafetyNotFound,
    ];

    /// The enumerator's name in the header, which is what `dat_strerror` answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoSubtype => "DAT_NO_SUBTYPE",
            Self::SubInterrupted => "DAT_SUB_INTERRUPTED",
            Self::ResourceMemory => "DAT_RESOURCE_MEMORY",
            Self::ResourceDevice => "DAT_RESOURCE_DEVICE",
            Self::ResourceTep => "DAT_RESOURCE_TEP",
            Self::ResourceTevd => "DAT_RESOURCE_TEVD",
            Self::ResourceProtectionDomain => "DAT_RESOURCE_PROTECTION_DOMAIN",
            Self::ResourceMemoryRegion => "DAT_RESOURCE_MEMORY_REGION",
            Self::ResourceErrorHandler => "DAT_RESOURCE_ERROR_HANDLER",
            Self::ResourceCredits => "DAT_RESOURCE_CREDITS",
            Self::ResourceSrq => "DAT_RESOURCE_SRQ",
            Self::InvalidHandleIa => "DAT_INVALID_HANDLE_IA",
            Self::InvalidHandleEp => "DAT_INVALID_HANDLE_EP",
            Self::InvalidHandleLmr => "DAT_INVALID_HANDLE_LMR",
            Self::InvalidHandleRmr => "DAT_INVALID_HANDLE_RMR",
            Self::InvalidHandlePz => "DAT_INVALID_HANDLE_PZ",
            Self::InvalidHandlePsp => "DAT_INVALID_HANDLE_PSP",
            Self::InvalidHandleRsp => "DAT_INVALID_HANDLE_RSP",
            Self::InvalidHandleCr => "DAT_INVALID_HANDLE_CR",
            Self::InvalidHandleCno => "DAT_INVALID_HANDLE_CNO",
            Self::InvalidHandleEvdCr => "DAT_INVALID_HANDLE_EVD_CR",
            Self::InvalidHandleEvdRequest => "DAT_INVALID_HANDLE_EVD_REQUEST",
            Self::InvalidHandleEvdRecv => "DAT_INVALID_HANDLE_EVD_RECV",
            Self::InvalidHandleEvdConn => "DAT_INVALID_HANDLE_EVD_CONN",
            Self::InvalidHandleEvdAsync => "DAT_INVALID_HANDLE_EVD_ASYNC",
            Self::InvalidHandleSrq => "DAT_INVALID_HANDLE_SRQ",
            Self::InvalidHandle1 => "DAT_INVALID_HANDLE1",
            Self::InvalidHandle2 => "DAT_INVALID_HANDLE2",
            Self::InvalidHandle3 => "DAT_INVALID_HANDLE3",
            Self::InvalidHandle4 => "DAT_INVALID_HANDLE4",
            Self::InvalidHandle5 => "DAT_INVALID_HANDLE5",
            Self::InvalidHandle6 => "DAT_INVALID_HANDLE6",
            Self::InvalidHandle7 => "DAT_INVALID_HANDLE7",
            Self::InvalidHandle8 => "DAT_INVALID_HANDLE8",
            Self::InvalidHandle9 => "DAT_INVALID_HANDLE9",
            Self::InvalidHandle10 => "DAT_INVALID_HANDLE10",
            Self::InvalidArg1 => "DAT_INVALID_ARG1",
            Self::InvalidArg2 => "DAT_INVALID_ARG2",
            Self::InvalidArg3 => "DAT_INVALID_ARG3",
            Self::InvalidArg4 => "DAT_INVALID_ARG4",
            Self::InvalidArg5 => "DAT_INVALID_ARG5",
            Self::InvalidArg6 => "DAT_INVALID_ARG6",
            Self::InvalidArg7 => "DAT_INVALID_ARG7",
            Self::InvalidArg8 => "DAT_INVALID_ARG8",
            Self::InvalidArg9 => "DAT_INVALID_ARG9",
            Self::InvalidArg10 => "DAT_INVALID_ARG10",
            Self::InvalidStateEpUnconnected => "DAT_INVALID_STATE_EP_UNCONNECTED",
            Self::InvalidStateEpActconnpending => "DAT_INVALID_STATE_EP_ACTCONNPENDING",
            Self::InvalidStateEpPassconnpending => "DAT_INVALID_STATE_EP_PASSCONNPENDING",
            Self::InvalidStateEpTentconnpending => "DAT_INVALID_STATE_EP_TENTCONNPENDING",
            Self::InvalidStateEpConnected => "DAT_INVALID_STATE_EP_CONNECTED",
            Self::InvalidStateEpDisconnected => "DAT_INVALID_STATE_EP_DISCONNECTED",
            Self::InvalidStateEpReserved => "DAT_INVALID_STATE_EP_RESERVED",
            Self::InvalidStateEpComplpending => "DAT_INVALID_STATE_EP_COMPLPENDING",
            Self::InvalidStateEpDiscpending => "DAT_INVALID_STATE_EP_DISCPENDING",
            Self::InvalidStateEpProvidercontrol => "DAT_INVALID_STATE_EP_PROVIDERCONTROL",
            Self::InvalidStateEpNotready => "DAT_INVALID_STATE_EP_NOTREADY",
            Self::InvalidStateEpRecvWatermark => "DAT_INVALID_STATE_EP_RECV_WATERMARK",
            Self::InvalidStateEpPz => "DAT_INVALID_STATE_EP_PZ",
            Self::InvalidStateEpEvdRequest => "DAT_INVALID_STATE_EP_EVD_REQUEST",
            Self::InvalidStateEpEvdRecv => "DAT_INVALID_STATE_EP_EVD_RECV",
            Self::InvalidStateEpEvdConnect => "DAT_INVALID_STATE_EP_EVD_CONNECT",
            Self::InvalidStateEpUnconfigured => "DAT_INVALID_STATE_EP_UNCONFIGURED",
            Self::InvalidStateEpUnconfreserved => "DAT_INVALID_STATE_EP_UNCONFRESERVED",
            Self::InvalidStateEpUnconfpassive => "DAT_INVALID_STATE_EP_UNCONFPASSIVE",
            Self::InvalidStateEpUnconftentative => "DAT_INVALID_STATE_EP_UNCONFTENTATIVE",
            Self::InvalidStateCnoInUse => "DAT_INVALID_STATE_CNO_IN_USE",
            Self::InvalidStateCnoDead => "DAT_INVALID_STATE_CNO_DEAD",
            Self::InvalidStateEvdOpen => "DAT_INVALID_STATE_EVD_OPEN",
            Self::InvalidStateEvdEnabled => "DAT_INVALID_STATE_EVD_ENABLED",
            Self::InvalidStateEvdDisabled => "DAT_INVALID_STATE_EVD_DISABLED",
            Self::InvalidStateEvdWaitable => "DAT_INVALID_STATE_EVD_WAITABLE",
            Self::InvalidStateEvdUnwaitable => "DAT_INVALID_STATE_EVD_UNWAITABLE",
            Self::InvalidStateEvdInUse => "DAT_INVALID_STATE_EVD_IN_USE",
            Self::InvalidStateEvdConfigNotify => "DAT_INVALID_STATE_EVD_CONFIG_NOTIFY",
            Self::InvalidStateEvdConfigSolicited => "DAT_INVALID_STATE_EVD_CONFIG_SOLICITED",
            Self::InvalidStateEvdConfigThreshold => "DAT_INVALID_STATE_EVD_CONFIG_THRESHOLD",
            Self::InvalidStateEvdWaiter => "DAT_INVALID_STATE_EVD_WAITER",
            Self::InvalidStateEvdAsync => "DAT_INVALID_STATE_EVD_ASYNC",
            Self::InvalidStateIaInUse => "DAT_INVALID_STATE_IA_IN_USE",
            Self::InvalidStateLmrInUse => "DAT_INVALID_STATE_LMR_IN_USE",
            Self::InvalidStateLmrFree => "DAT_INVALID_STATE_LMR_FREE",
            Self::InvalidStatePzInUse => "DAT_INVALID_STATE_PZ_IN_USE",
            Self::InvalidStatePzFree => "DAT_INVALID_STATE_PZ_FREE",
            Self::InvalidStateSrqOperational => "DAT_INVALID_STATE_SRQ_OPERATIONAL",
            Self::InvalidStateSrqError => "DAT_INVALID_STATE_SRQ_ERROR",
            Self::InvalidStateSrqInUse => "DAT_INVALID_STATE_SRQ_IN_USE",
            Self::PrivilegesRead => "DAT_PRIVILEGES_READ",
            Self::PrivilegesWrite => "DAT_PRIVILEGES_WRITE",
            Self::PrivilegesRdmaRead => "DAT_PRIVILEGES_RDMA_READ",
            Self::PrivilegesRdmaWrite => "DAT_PRIVILEGES_RDMA_WRITE",
            Self::ProtectionRead => "DAT_PROTECTION_READ",
            Self::ProtectionWrite => "DAT_PROTECTION_WRITE",
            Self::ProtectionRdmaRead => "DAT_PROTECTION_RDMA_READ",
            Self::ProtectionRdmaWrite => "DAT_PROTECTION_RDMA_WRITE",
            Self::InvalidAddressUnsupported => "DAT_INVALID_ADDRESS_UNSUPPORTED",
            Self::InvalidAddressUnreachable => "DAT_INVALID_ADDRESS_UNREACHABLE",
            Self::InvalidAddressMalformed => "DAT_INVALID_ADDRESS_MALFORMED",
            Self::NameNotRegistered => "DAT_NAME_NOT_REGISTERED",
            Self::MajorNotFound => "DAT_MAJOR_NOT_FOUND",
            Self::MinorNotFound => "DAT_MINOR_NOT_FOUND",
            Self::ThreadSafetyNotFound => "DAT_THREAD_SAFETY_NOT_FOUND",
        }
    }
}
