//! Return codes.

use super::types::DAT_UINT32;
use core::ffi::c_uint;
use dat_api::{ReturnType, Subtype};

/// What a call answers: class, type and subtype or-ed; 0 is success.
pub type DAT_RETURN = DAT_UINT32;
/// What went wrong.
pub type DAT_RETURN_TYPE = c_uint;
/// The detail.
pub type DAT_RETURN_SUBTYPE = c_uint;

pub const DAT_CLASS_ERROR: DAT_RETURN = 0x8000_0000;
pub const DAT_CLASS_WARNING: DAT_RETURN = 0x4000_0000;
pub const DAT_CLASS_SUCCESS: DAT_RETURN = 0;
pub const DAT_TYPE_MASK: DAT_RETURN = 0x3fff_0000;
pub const DAT_SUBTYPE_MASK: DAT_RETURN = 0xffff;

/// The names of C for the values that `dat_api` has; one list of numbers for both.
macro_rules! codes {
    ($type:ident is $of:ident { $($c:ident = $rust:ident)* }) => {
        $(pub const $c: $type = $of::$rust as $type;)*
    };
}

codes! { DAT_RETURN_TYPE is ReturnType {
    DAT_SUCCESS = Success
    DAT_ABORT = Abort
    DAT_CONN_QUAL_IN_USE = ConnQualInUse
    DAT_INSUFFICIENT_RESOURCES = InsufficientResources
    DAT_INTERNAL_ERROR = InternalError
    DAT_INVALID_HANDLE = InvalidHandle
    DAT_INVALID_PARAMETER = InvalidParameter
    DAT_INVALID_STATE = InvalidState
    DAT_LENGTH_ERROR = LengthError
    DAT_MODEL_NOT_SUPPORTED = ModelNotSupported
    DAT_PROVIDER_NOT_FOUND = ProviderNotFound
    DAT_PRIVILEGES_VIOLATION = PrivilegesViolation
    DAT_PROTECTION_VIOLATION = ProtectionViolation
    DAT_QUEUE_EMPTY = QueueEmpty
    DAT_QUEUE_FULL = QueueFull
    DAT_TIMEOUT_EXPIRED = TimeoutExpired
    DAT_PROVIDER_ALREADY_REGISTERED = ProviderAlreadyRegistered
    DAT_PROVIDER_IN_USE = ProviderInUse
    DAT_INVALID_ADDRESS = InvalidAddress
    DAT_INTERRUPTED_CALL = InterruptedCall
    DAT_CONN_QUAL_UNAVAILABLE = ConnQualUnavailable
    DAT_NOT_IMPLEMENTED = NotImplemented
} }
pub const DAT_NAME_NOT_FOUND: DAT_RETURN_TYPE = DAT_PROVIDER_NOT_FOUND;

codes! { DAT_RETURN_SUBTYPE is Subtype {
    DAT_NO_SUBTYPE = NoSubtype
    DAT_SUB_INTERRUPTED = SubInterrupted
    DAT_RESOURCE_MEMORY = ResourceMemory
    DAT_RESOURCE_DEVICE = ResourceDevice
    DAT_RESOURCE_TEP = ResourceTep
    DAT_RESOURCE_TEVD = ResourceTevd
    DAT_RESOURCE_PROTECTION_DOMAIN = ResourceProtectionDomain
    DAT_RESOURCE_MEMORY_REGION = ResourceMemoryRegion
    DAT_RESOURCE_ERROR_HANDLER = ResourceErrorHandler
    DAT_RESOURCE_CREDITS = ResourceCredits
    DAT_RESOURCE_SRQ = ResourceSrq
    DAT_INVALID_HANDLE_IA = InvalidHandleIa
    DAT_INVALID_HANDLE_EP = InvalidHandleEp
    DAT_INVALID_HANDLE_LMR = InvalidHandleLmr
    DAT_INVALID_HANDLE_RMR = InvalidHandleRmr
    DAT_INVALID_HANDLE_PZ = InvalidHandlePz
    DAT_INVALID_HANDLE_PSP = InvalidHandlePsp
    DAT_INVALID_HANDLE_RSP = InvalidHandleRsp
    DAT_INVALID_HANDLE_CR = InvalidHandleCr
    DAT_INVALID_HANDLE_CNO = InvalidHandleCno
    DAT_INVALID_HANDLE_EVD_CR = InvalidHandleEvdCr
    DAT_INVALID_HANDLE_EVD_REQUEST = InvalidHandleEvdRequest
    DAT_INVALID_HANDLE_EVD_RECV = InvalidHandleEvdRecv
    DAT_INVALID_HANDLE_EVD_CONN = InvalidHandleEvdConn
    DAT_INVALID_HANDLE_EVD_ASYNC = InvalidHandleEvdAsync
    DAT_INVALID_HANDLE_SRQ = InvalidHandleSrq
    DAT_INVALID_HANDLE1 = InvalidHandle1
    DAT_INVALID_HANDLE2 = InvalidHandle2
    DAT_INVALID_HANDLE3 = InvalidHandle3
    DAT_INVALID_HANDLE4 = InvalidHandle4
    DAT_INVALID_HANDLE5 = InvalidHandle5
    DAT_INVALID_HANDLE6 = InvalidHandle6
    DAT_INVALID_HANDLE7 = InvalidHandle7
    DAT_INVALID_HANDLE8 = InvalidHandle8
    DAT_INVALID_HANDLE9 = InvalidHandle9
    DAT_INVALID_HANDLE10 = InvalidHandle10
    DAT_INVALID_ARG1 = InvalidArg1
    DAT_INVALID_ARG2 = InvalidArg2
    DAT_INVALID_ARG3 = InvalidArg3
    DAT_INVALID_ARG4 = InvalidArg4
    DAT_INVALID_ARG5 = InvalidArg5
    DAT_INVALID_ARG6 = InvalidArg6
    DAT_INVALID_ARG7 = InvalidArg7
    DAT_INVALID_ARG8 = InvalidArg8
    DAT_INVALID_ARG9 = InvalidArg9
    DAT_INVALID_ARG10 = InvalidArg10
    DAT_INVALID_STATE_EP_UNCONNECTED = InvalidStateEpUnconnected
    DAT_INVALID_STATE_EP_ACTCONNPENDING = InvalidStateEpActconnpending
    DAT_INVALID_STATE_EP_PASSCONNPENDING = InvalidStateEpPassconnpending
    DAT_INVALID_STATE_EP_TENTCONNPENDING = InvalidStateEpTentconnpending
    DAT_INVALID_STATE_EP_CONNECTED = InvalidStateEpConnected
    DAT_INVALID_STATE_EP_DISCONNECTED = InvalidStateEpDisconnected
    DAT_INVALID_STATE_EP_RESERVED = InvalidStateEpReserved
    DAT_INVALID_STATE_EP_COMPLPENDING = InvalidStateEpComplpending
    DAT_INVALID_STATE_EP_DISCPENDING = InvalidStateEpDiscpending
    DAT_INVALID_STATE_EP_PROVIDERCONTROL = InvalidStateEpProvidercontrol
    DAT_INVALID_STATE_EP_NOTREADY = InvalidStateEpNotready
    DAT_INVALID_STATE_EP_RECV_WATERMARK = InvalidStateEpRecvWatermark
    DAT_INVALID_STATE_EP_PZ = InvalidStateEpPz
    DAT_INVALID_STATE_EP_EVD_REQUEST = InvalidStateEpEvdRequest
    DAT_INVALID_STATE_EP_EVD_RECV = InvalidStateEpEvdRecv
    DAT_INVALID_STATE_EP_EVD_CONNECT = InvalidStateEpEvdConnect
    DAT_INVALID_STATE_EP_UNCONFIGURED = InvalidStateEpUnconfigured
    DAT_INVALID_STATE_EP_UNCONFRESERVED = InvalidStateEpUnconfreserved
    DAT_INVALID_STATE_EP_UNCONFPASSIVE = InvalidStateEpUnconfpassive
    DAT_INVALID_STATE_EP_UNCONFTENTATIVE = InvalidStateEpUnconftentative
    DAT_INVALID_STATE_CNO_IN_USE = InvalidStateCnoInUse
    DAT_INVALID_STATE_CNO_DEAD = InvalidStateCnoDead
    DAT_INVALID_STATE_EVD_OPEN = InvalidStateEvdOpen
    DAT_INVALID_STATE_EVD_ENABLED = InvalidStateEvdEnabled
    DAT_INVALID_STATE_EVD_DISABLED = InvalidStateEvdDisabled
    DAT_INVALID_STATE_EVD_WAITABLE = InvalidStateEvdWaitable
    DAT_INVALID_STATE_EVD_UNWAITABLE = InvalidStateEvdUnwaitable
    DAT_INVALID_STATE_EVD_IN_USE = InvalidStateEvdInUse
    DAT_INVALID_STATE_EVD_CONFIG_NOTIFY = InvalidStateEvdConfigNotify
    DAT_INVALID_STATE_EVD_CONFIG_SOLICITED = InvalidStateEvdConfigSolicited
    DAT_INVALID_STATE_EVD_CONFIG_THRESHOLD = InvalidStateEvdConfigThreshold
    DAT_INVALID_STATE_EVD_WAITER = InvalidStateEvdWaiter
    DAT_INVALID_STATE_EVD_ASYNC = InvalidStateEvdAsync
    DAT_INVALID_STATE_IA_IN_USE = InvalidStateIaInUse
    DAT_INVALID_STATE_LMR_IN_USE = InvalidStateLmrInUse
    DAT_INVALID_STATE_LMR_FREE = InvalidStateLmrFree
    DAT_INVALID_STATE_PZ_IN_USE = InvalidStatePzInUse
    DAT_INVALID_STATE_PZ_FREE = InvalidStatePzFree
    DAT_INVALID_STATE_SRQ_OPERATIONAL = InvalidStateSrqOperational
    DAT_INVALID_STATE_SRQ_ERROR = InvalidStateSrqError
    DAT_INVALID_STATE_SRQ_IN_USE = InvalidStateSrqInUse
    DAT_PRIVILEGES_READ = PrivilegesRead
    DAT_PRIVILEGES_WRITE = PrivilegesWrite
    DAT_PRIVILEGES_RDMA_READ = PrivilegesRdmaRead
    DAT_PRIVILEGES_RDMA_WRITE = PrivilegesRdmaWrite
    DAT_PROTECTION_READ = ProtectionRead
    DAT_PROTECTION_WRITE = ProtectionWrite
    DAT_PROTECTION_RDMA_READ = ProtectionRdmaRead
    DAT_PROTECTION_RDMA_WRITE = ProtectionRdmaWrite
    DAT_INVALID_ADDRESS_UNSUPPORTED = InvalidAddressUnsupported
    DAT_INVALID_ADDRESS_UNREACHABLE = InvalidAddressUnreachable
    DAT_INVALID_ADDRESS_MALFORMED = InvalidAddressMalformed
    DAT_NAME_NOT_REGISTERED = NameNotRegistered
    DAT_MAJOR_NOT_FOUND = MajorNotFound
    DAT_MINOR_NOT_FOUND = MinorNotFound
    DAT_THREAD_SAFETY_NOT_FOUND = ThreadSafetyNotFound
} }
