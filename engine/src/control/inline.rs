//! Finding the inline size of a queue pair.
//!
//! No verb reports how many inline bytes a device supports. A driver refuses to
//! create a queue pair with too many, usually with `EINVAL`; some drivers grant
//! fewer instead. So after a refusal, smaller sizes are tried on queue pairs that
//! are destroyed at once, and the result is cached per device.
//! A caller that accepts fewer bytes (`inline_or_fewer`, which DAT sets) gets the size
//! that was found; another caller gets an error that names it.

use crate::error::{ControlError, ControlErrorKind};
use crate::sync::Mutex;

/// The inline bytes that a caller requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct InlineRequest {
    pub(super) bytes: u32,
    /// Accept fewer bytes, down to 0.
    pub(super) or_fewer: bool,
}

/// The properties of a queue pair that its inline size may depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) send_depth: u32,
    pub(super) send_segments: u32,
    pub(super) recv_depth: u32,
    pub(super) recv_segments: u32,
    pub(super) shared: bool,
    pub(super) windows: bool,
}

/// The cache: the largest inline sizes found, by shape of the queue pair.
#[derive(Default)]
pub(super) struct InlineCache(Mutex<Vec<(Shape, u32)>>);

impl InlineCache {
    /// The most cached shapes: programs use few.
    const MOST: usize = 16;

    fn of(&self, shape: Shape) -> Option<u32> {
        let found = self.0.lock();
        let entry = found.iter().find(|(known, _)| *known == shape);
        entry.map(|&(_, bytes)| bytes)
    }

    fn remember(&self, shape: Shape, bytes: u32) {
        let mut found = self.0.lock();
        found.retain(|(known, _)| *known != shape);
        if found.len() == Self::MOST {
            found.remove(0);
        }
        found.push((shape, bytes));
    }
}

/// Creates a queue pair with the inline bytes of `wanted`. `attempt` creates one with
/// a number of inline bytes, and returns it with the granted number.
///
/// # Errors
/// The error of `attempt`, if the queue pair cannot be created without inline bytes
/// either. Otherwise, if all bytes of `wanted` are required, an error that names the
/// most that the device supports.
pub(super) fn create<T>(
    wanted: InlineRequest,
    shape: Shape,
    found: &InlineCache,
    mut attempt: impl FnMut(u32) -> Result<(T, u32), ControlError>,
    discard: impl Fn(T),
) -> Result<T, ControlError> {
    let first = match found.of(shape) {
        Some(most) if wanted.or_fewer => wanted.bytes.min(most),
        _ => wanted.bytes,
    };
    let largest = match attempt(first) {
        Ok((made, granted)) if wanted.or_fewer || granted >= wanted.bytes => return Ok(made),
        Ok((made, granted)) => {
            discard(made);
            granted
        }
        Err(error) if first == 0 || !may_be_the_size(&error) => return Err(error),
        Err(error) => {
            let mut granted = |bytes| {
                let (made, granted) = attempt(bytes)?;
                discard(made);
                Ok(granted)
            };
            // If it is refused without inline bytes, the inline size is not the
            // cause.
            let Ok(least) = granted(0) else {
                return Err(error);
            };
            search(least, first, granted)?
        }
    };
    found.remember(shape, largest);
    tracing::debug!(largest, ?shape, "the largest inline size");
    match wanted.or_fewer {
        true => attempt(largest).map(|(made, _)| made),
        false => Err(refusal(wanted.bytes, largest, shape)),
    }
}

/// Finds the largest granted size below `refused`; 0 is granted.
fn search(
    least: u32,
    mut refused: u32,
    mut granted: impl FnMut(u32) -> Result<u32, ControlError>,
) -> Result<u32, ControlError> {
    let mut largest = least.min(refused - 1);
    while refused - largest > 1 {
        let middle = largest + (refused - largest) / 2;
        match granted(middle) {
            Ok(granted) => {
                if granted < middle {
                    refused = middle;
                }
                largest = largest.max(granted).min(refused - 1);
            }
            Err(error) if may_be_the_size(&error) => refused = middle,
            Err(error) => return Err(error),
        }
    }
    Ok(largest)
}

/// Returns whether a driver may report a refused inline size by this error.
fn may_be_the_size(error: &ControlError) -> bool {
    matches!(
        error.errno(),
        Some(libc::EINVAL | libc::E2BIG | libc::ENOSPC | libc::EOPNOTSUPP)
    ) || error.errno() == Some(libc::ENOMEM) && error.kind() == ControlErrorKind::OutOfResources
}

fn refusal(asked: u32, largest: u32, shape: Shape) -> ControlError {
    let Shape {
        send_depth,
        send_segments,
        ..
    } = shape;
    ControlError::new(
        ControlErrorKind::Limit,
        super::qp::CREATE,
        format!(
            "{asked} inline bytes are requested, but the device supports at most {largest} bytes \
             inline (send depth {send_depth}, segments {send_segments})"
        ),
    )
    .with_remedy(match largest {
        0 => "request no inline bytes".to_owned(),
        _ => format!("request {largest} inline bytes or fewer"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    const SHAPE: Shape = Shape {
        send_depth: 128,
        send_segments: 1,
        recv_depth: 128,
        recv_segments: 1,
        shared: false,
        windows: false,
    };

    /// A device that refuses more than `most` bytes with an error number.
    struct Fake {
        most: u32,
        errno: i32,
        asked: RefCell<Vec<u32>>,
        alive: Cell<u32>,
        found: InlineCache,
    }

    impl Fake {
        fn new(most: u32) -> Self {
            Self {
                most,
                errno: libc::EINVAL,
                asked: RefCell::default(),
                alive: Cell::new(0),
                found: InlineCache::default(),
            }
        }

        fn create(&self, bytes: u32, or_fewer: bool) -> Result<u32, ControlError> {
            let attempt = |bytes: u32| {
                self.asked.borrow_mut().push(bytes);
                if bytes > self.most {
                    return Err(ControlError::verbs("create", self.errno));
                }
                self.alive.set(self.alive.get() + 1);
                Ok((bytes, bytes))
            };
            let discard = |_| self.alive.set(self.alive.get() - 1);
            create(
                InlineRequest { bytes, or_fewer },
                SHAPE,
                &self.found,
                attempt,
                discard,
            )
        }
    }

    #[test]
    fn a_granted_size_takes_one_attempt() {
        let device = Fake::new(236);
        assert_eq!(device.create(64, true).unwrap(), 64);
        assert_eq!(device.create(236, false).unwrap(), 236);
        assert_eq!(*device.asked.borrow(), [64, 236]);
    }

    #[test]
    fn or_fewer_gets_the_largest_size_and_caches_it() {
        for most in [0, 1, 16, 63, 64, 101, 235] {
            let device = Fake::new(most);
            assert_eq!(device.create(236, true).unwrap(), most, "{most}");
            assert_eq!(device.alive.get(), 1, "only the last one is left");
            device.asked.borrow_mut().clear();
            assert_eq!(device.create(236, true).unwrap(), most, "{most}");
            assert_eq!(*device.asked.borrow(), [most], "nothing is tried again");
        }
    }

    #[test]
    fn a_refusal_names_the_largest_size() {
        let device = Fake::new(64);
        let error = device.create(236, false).unwrap_err();
        assert_eq!(error.kind(), ControlErrorKind::Limit);
        assert_eq!(
            error.to_string(),
            "cannot create a queue pair: 236 inline bytes are requested, but the device supports at \
             most 64 bytes inline (send depth 128, segments 1)\nrequest 64 inline bytes or fewer"
        );
        assert_eq!(device.alive.get(), 0, "no queue pair is left");
        let nothing = Fake::new(0).create(1, false).unwrap_err().to_string();
        assert!(nothing.contains("at most 0 bytes inline"), "{nothing}");
        assert!(nothing.ends_with("request no inline bytes"), "{nothing}");
    }

    #[test]
    fn a_driver_may_refuse_large_sizes_and_reduce_smaller_ones() {
        for most in [0, 10, 63, 64, 100] {
            let attempt = |bytes: u32| match bytes {
                // libmlx5 rounds in this way before the kernel gets the size.
                0..=127 => Ok((bytes.min(most), bytes.min(most))),
                _ => Err(ControlError::verbs("create", libc::EINVAL)),
            };
            let wanted = |or_fewer| InlineRequest {
                bytes: 236,
                or_fewer,
            };
            let found = InlineCache::default();
            let create = |or_fewer| create(wanted(or_fewer), SHAPE, &found, attempt, drop);
            let expected = format!("at most {most} bytes inline");
            let error = create(false).unwrap_err().to_string();
            assert!(error.contains(&expected), "{error}");
            assert_eq!(create(true).unwrap(), most);
        }
    }

    #[test]
    fn a_driver_that_grants_fewer_is_treated_as_one_that_refuses() {
        let grants = |bytes: u32| Ok(((), bytes.min(32)));
        let wanted = |or_fewer| InlineRequest {
            bytes: 64,
            or_fewer,
        };
        let found = InlineCache::default();
        assert!(create(wanted(true), SHAPE, &found, grants, drop).is_ok());
        let error = create(wanted(false), SHAPE, &found, grants, drop).unwrap_err();
        assert!(
            error.to_string().contains("at most 32 bytes inline"),
            "{error}"
        );
    }

    #[test]
    fn other_errors_are_returned_unchanged() {
        // The device grants no queue pair, with or without inline bytes.
        let attempt = |_| Err::<((), u32), _>(ControlError::verbs("create", libc::ENOMEM));
        for or_fewer in [true, false] {
            let wanted = InlineRequest {
                bytes: 64,
                or_fewer,
            };
            let error = create(wanted, SHAPE, &InlineCache::default(), attempt, drop).unwrap_err();
            assert_eq!(error.errno(), Some(libc::ENOMEM));
        }
        // An error that no driver returns for an inline size causes no search.
        let device = Fake {
            errno: libc::EPERM,
            ..Fake::new(0)
        };
        assert_eq!(
            device.create(64, true).unwrap_err().errno(),
            Some(libc::EPERM)
        );
        assert_eq!(*device.asked.borrow(), [64]);
    }

    #[test]
    fn the_number_of_cached_shapes_is_limited() {
        let found = InlineCache::default();
        for send_depth in 0..100 {
            let shape = Shape {
                send_depth,
                ..SHAPE
            };
            found.remember(shape, send_depth);
            assert_eq!(found.of(shape), Some(send_depth));
        }
        assert_eq!(found.0.lock().len(), InlineCache::MOST);
        assert_eq!(found.of(SHAPE), None);
    }
}
