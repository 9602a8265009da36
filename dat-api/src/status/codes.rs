//! The types and subtypes of a `DAT_RETURN`, with the numbers of `dat/dat_error.h`.

use core::ffi::CStr;

/// Defines an enumeration from a table: variant, number, name in C.
macro_rules! enumeration {
    (
        $(#[$doc:meta])*
        $name:ident { $($variant:ident = $number:literal, $c:literal;)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum $name {
            $(#[doc = concat!("`", $c, "`")] $variant = $number,)*
        }

        impl $name {
            /// All values, in the order of the header.
            pub const ALL: [Self; [$($number),*].len()] = [$(Self::$variant),*];

            /// Returns the enumerator's name in the header.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $c,)*
                }
            }

            /// Returns [`Self::name`] as a C string.
            pub const fn c_name(self) -> &'static CStr {
                match self {
                    $(Self::$variant => const { c_string(concat!($c, "\0")) },)*
                }
            }
        }
    };
}

/// Returns a text that ends in NUL as a C string.
const fn c_string(text: &str) -> &CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(string) => string,
        Err(_) => panic!("a name ends in its only NUL"),
    }
}

enumeration! {
    /// The kind of error: bits 16 to 29 of a `DAT_RETURN`.
    ReturnType {
        Success = 0x0, "DAT_SUCCESS";
        Abort = 0x1_0000, "DAT_ABORT";
        ConnQualInUse = 0x2_0000, "DAT_CONN_QUAL_IN_USE";
        InsufficientResources = 0x3_0000, "DAT_INSUFFICIENT_RESOURCES";
        InternalError = 0x4_0000, "DAT_INTERNAL_ERROR";
        InvalidHandle = 0x5_0000, "DAT_INVALID_HANDLE";
        InvalidParameter = 0x6_0000, "DAT_INVALID_PARAMETER";
        InvalidState = 0x7_0000, "DAT_INVALID_STATE";
        LengthError = 0x8_0000, "DAT_LENGTH_ERROR";
        ModelNotSupported = 0x9_0000, "DAT_MODEL_NOT_SUPPORTED";
        ProviderNotFound = 0xa_0000, "DAT_PROVIDER_NOT_FOUND";
        PrivilegesViolation = 0xb_0000, "DAT_PRIVILEGES_VIOLATION";
        ProtectionViolation = 0xc_0000, "DAT_PROTECTION_VIOLATION";
        QueueEmpty = 0xd_0000, "DAT_QUEUE_EMPTY";
        QueueFull = 0xe_0000, "DAT_QUEUE_FULL";
        TimeoutExpired = 0xf_0000, "DAT_TIMEOUT_EXPIRED";
        ProviderAlreadyRegistered = 0x10_0000, "DAT_PROVIDER_ALREADY_REGISTERED";
        ProviderInUse = 0x11_0000, "DAT_PROVIDER_IN_USE";
        InvalidAddress = 0x12_0000, "DAT_INVALID_ADDRESS";
        InterruptedCall = 0x13_0000, "DAT_INTERRUPTED_CALL";
        ConnQualUnavailable = 0x14_0000, "DAT_CONN_QUAL_UNAVAILABLE";
        NotImplemented = 0xfff_0000, "DAT_NOT_IMPLEMENTED";
    }
}

enumeration! {
    /// The detail of an error: bits 0 to 15 of a `DAT_RETURN`. The numbers are shared by all types.
    Subtype {
        NoSubtype = 0, "DAT_NO_SUBTYPE";
        SubInterrupted = 1, "DAT_SUB_INTERRUPTED";
        ResourceMemory = 2, "DAT_RESOURCE_MEMORY";
        ResourceDevice = 3, "DAT_RESOURCE_DEVICE";
        ResourceTep = 4, "DAT_RESOURCE_TEP";
        ResourceTevd = 5, "DAT_RESOURCE_TEVD";
        ResourceProtectionDomain = 6, "DAT_RESOURCE_PROTECTION_DOMAIN";
        ResourceMemoryRegion = 7, "DAT_RESOURCE_MEMORY_REGION";
        ResourceErrorHandler = 8, "DAT_RESOURCE_ERROR_HANDLER";
        ResourceCredits = 9, "DAT_RESOURCE_CREDITS";
        ResourceSrq = 10, "DAT_RESOURCE_SRQ";
        InvalidHandleIa = 11, "DAT_INVALID_HANDLE_IA";
        InvalidHandleEp = 12, "DAT_INVALID_HANDLE_EP";
        InvalidHandleLmr = 13, "DAT_INVALID_HANDLE_LMR";
        InvalidHandleRmr = 14, "DAT_INVALID_HANDLE_RMR";
        InvalidHandlePz = 15, "DAT_INVALID_HANDLE_PZ";
        InvalidHandlePsp = 16, "DAT_INVALID_HANDLE_PSP";
        InvalidHandleRsp = 17, "DAT_INVALID_HANDLE_RSP";
        InvalidHandleCr = 18, "DAT_INVALID_HANDLE_CR";
        InvalidHandleCno = 19, "DAT_INVALID_HANDLE_CNO";
        InvalidHandleEvdCr = 20, "DAT_INVALID_HANDLE_EVD_CR";
        InvalidHandleEvdRequest = 21, "DAT_INVALID_HANDLE_EVD_REQUEST";
        InvalidHandleEvdRecv = 22, "DAT_INVALID_HANDLE_EVD_RECV";
        InvalidHandleEvdConn = 23, "DAT_INVALID_HANDLE_EVD_CONN";
        InvalidHandleEvdAsync = 24, "DAT_INVALID_HANDLE_EVD_ASYNC";
        InvalidHandleSrq = 25, "DAT_INVALID_HANDLE_SRQ";
        InvalidHandle1 = 26, "DAT_INVALID_HANDLE1";
        InvalidHandle2 = 27, "DAT_INVALID_HANDLE2";
        InvalidHandle3 = 28, "DAT_INVALID_HANDLE3";
        InvalidHandle4 = 29, "DAT_INVALID_HANDLE4";
        InvalidHandle5 = 30, "DAT_INVALID_HANDLE5";
        InvalidHandle6 = 31, "DAT_INVALID_HANDLE6";
        InvalidHandle7 = 32, "DAT_INVALID_HANDLE7";
        InvalidHandle8 = 33, "DAT_INVALID_HANDLE8";
        InvalidHandle9 = 34, "DAT_INVALID_HANDLE9";
        InvalidHandle10 = 35, "DAT_INVALID_HANDLE10";
        InvalidArg1 = 36, "DAT_INVALID_ARG1";
        InvalidArg2 = 37, "DAT_INVALID_ARG2";
        InvalidArg3 = 38, "DAT_INVALID_ARG3";
        InvalidArg4 = 39, "DAT_INVALID_ARG4";
        InvalidArg5 = 40, "DAT_INVALID_ARG5";
        InvalidArg6 = 41, "DAT_INVALID_ARG6";
        InvalidArg7 = 42, "DAT_INVALID_ARG7";
        InvalidArg8 = 43, "DAT_INVALID_ARG8";
        InvalidArg9 = 44, "DAT_INVALID_ARG9";
        InvalidArg10 = 45, "DAT_INVALID_ARG10";
        InvalidStateEpUnconnected = 46, "DAT_INVALID_STATE_EP_UNCONNECTED";
        InvalidStateEpActconnpending = 47, "DAT_INVALID_STATE_EP_ACTCONNPENDING";
        InvalidStateEpPassconnpending = 48, "DAT_INVALID_STATE_EP_PASSCONNPENDING";
        InvalidStateEpTentconnpending = 49, "DAT_INVALID_STATE_EP_TENTCONNPENDING";
        InvalidStateEpConnected = 50, "DAT_INVALID_STATE_EP_CONNECTED";
        InvalidStateEpDisconnected = 51, "DAT_INVALID_STATE_EP_DISCONNECTED";
        InvalidStateEpReserved = 52, "DAT_INVALID_STATE_EP_RESERVED";
        InvalidStateEpComplpending = 53, "DAT_INVALID_STATE_EP_COMPLPENDING";
        InvalidStateEpDiscpending = 54, "DAT_INVALID_STATE_EP_DISCPENDING";
        InvalidStateEpProvidercontrol = 55, "DAT_INVALID_STATE_EP_PROVIDERCONTROL";
        InvalidStateEpNotready = 56, "DAT_INVALID_STATE_EP_NOTREADY";
        InvalidStateEpRecvWatermark = 57, "DAT_INVALID_STATE_EP_RECV_WATERMARK";
        InvalidStateEpPz = 58, "DAT_INVALID_STATE_EP_PZ";
        InvalidStateEpEvdRequest = 59, "DAT_INVALID_STATE_EP_EVD_REQUEST";
        InvalidStateEpEvdRecv = 60, "DAT_INVALID_STATE_EP_EVD_RECV";
        InvalidStateEpEvdConnect = 61, "DAT_INVALID_STATE_EP_EVD_CONNECT";
        InvalidStateEpUnconfigured = 62, "DAT_INVALID_STATE_EP_UNCONFIGURED";
        InvalidStateEpUnconfreserved = 63, "DAT_INVALID_STATE_EP_UNCONFRESERVED";
        InvalidStateEpUnconfpassive = 64, "DAT_INVALID_STATE_EP_UNCONFPASSIVE";
        InvalidStateEpUnconftentative = 65, "DAT_INVALID_STATE_EP_UNCONFTENTATIVE";
        InvalidStateCnoInUse = 66, "DAT_INVALID_STATE_CNO_IN_USE";
        InvalidStateCnoDead = 67, "DAT_INVALID_STATE_CNO_DEAD";
        InvalidStateEvdOpen = 68, "DAT_INVALID_STATE_EVD_OPEN";
        InvalidStateEvdEnabled = 69, "DAT_INVALID_STATE_EVD_ENABLED";
        InvalidStateEvdDisabled = 70, "DAT_INVALID_STATE_EVD_DISABLED";
        InvalidStateEvdWaitable = 71, "DAT_INVALID_STATE_EVD_WAITABLE";
        InvalidStateEvdUnwaitable = 72, "DAT_INVALID_STATE_EVD_UNWAITABLE";
        InvalidStateEvdInUse = 73, "DAT_INVALID_STATE_EVD_IN_USE";
        InvalidStateEvdConfigNotify = 74, "DAT_INVALID_STATE_EVD_CONFIG_NOTIFY";
        InvalidStateEvdConfigSolicited = 75, "DAT_INVALID_STATE_EVD_CONFIG_SOLICITED";
        InvalidStateEvdConfigThreshold = 76, "DAT_INVALID_STATE_EVD_CONFIG_THRESHOLD";
        InvalidStateEvdWaiter = 77, "DAT_INVALID_STATE_EVD_WAITER";
        InvalidStateEvdAsync = 78, "DAT_INVALID_STATE_EVD_ASYNC";
        InvalidStateIaInUse = 79, "DAT_INVALID_STATE_IA_IN_USE";
        InvalidStateLmrInUse = 80, "DAT_INVALID_STATE_LMR_IN_USE";
        InvalidStateLmrFree = 81, "DAT_INVALID_STATE_LMR_FREE";
        InvalidStatePzInUse = 82, "DAT_INVALID_STATE_PZ_IN_USE";
        InvalidStatePzFree = 83, "DAT_INVALID_STATE_PZ_FREE";
        InvalidStateSrqOperational = 84, "DAT_INVALID_STATE_SRQ_OPERATIONAL";
        InvalidStateSrqError = 85, "DAT_INVALID_STATE_SRQ_ERROR";
        InvalidStateSrqInUse = 86, "DAT_INVALID_STATE_SRQ_IN_USE";
        PrivilegesRead = 87, "DAT_PRIVILEGES_READ";
        PrivilegesWrite = 88, "DAT_PRIVILEGES_WRITE";
        PrivilegesRdmaRead = 89, "DAT_PRIVILEGES_RDMA_READ";
        PrivilegesRdmaWrite = 90, "DAT_PRIVILEGES_RDMA_WRITE";
        ProtectionRead = 91, "DAT_PROTECTION_READ";
        ProtectionWrite = 92, "DAT_PROTECTION_WRITE";
        ProtectionRdmaRead = 93, "DAT_PROTECTION_RDMA_READ";
        ProtectionRdmaWrite = 94, "DAT_PROTECTION_RDMA_WRITE";
        InvalidAddressUnsupported = 95, "DAT_INVALID_ADDRESS_UNSUPPORTED";
        InvalidAddressUnreachable = 96, "DAT_INVALID_ADDRESS_UNREACHABLE";
        InvalidAddressMalformed = 97, "DAT_INVALID_ADDRESS_MALFORMED";
        NameNotRegistered = 98, "DAT_NAME_NOT_REGISTERED";
        MajorNotFound = 99, "DAT_MAJOR_NOT_FOUND";
        MinorNotFound = 100, "DAT_MINOR_NOT_FOUND";
        ThreadSafetyNotFound = 101, "DAT_THREAD_SAFETY_NOT_FOUND";
    }
}
