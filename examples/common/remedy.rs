//! What to do about an error whose text does not say it. `dat-check` prints the same.

use dat_api::ReturnType;

/// Returns the remedy for an error, if one is known.
pub(crate) fn of(kind: ReturnType) -> Option<&'static str> {
    Some(match kind {
        ReturnType::ProviderNotFound => {
            "`dat-bench devices` lists the adapters of this host; without one, \
             `mlx5-emu run -- PROGRAM` provides an emulated one"
        }
        ReturnType::InvalidParameter => {
            "correct the variable or the key, or leave it out; see udapl(7) and dat.conf(5)"
        }
        ReturnType::InsufficientResources => {
            "check the limits of locked memory (`ulimit -l`) and of open files (`ulimit -n`)"
        }
        ReturnType::InvalidAddress => {
            "check the addresses of the port's network interface (`ip address`) and the keys gid \
             and listen of dat.conf(5); DAT_CM=socket makes connections over TCP"
        }
        ReturnType::ModelNotSupported => {
            "the device cannot do this; DAT_PATH=verbs drives any RDMA device that connects, and \
             DAT_CM=socket makes connections over TCP"
        }
        ReturnType::ConnQualInUse => {
            "end the program that listens there (`ss -ltnp`), or choose another qualifier with -p"
        }
        ReturnType::PrivilegesViolation => "choose a qualifier of 1024 or more with -p",
        _ => return None,
    })
}
