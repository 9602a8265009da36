//! The attributes of an ioctl command: checked against the method's list as in the
//! kernel's `uverbs_ioctl.c`, read, and written back.

use std::fmt::Debug;

use libc::{EFAULT, EINVAL, EOPNOTSUPP, EPROTONOSUPPORT};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::abi::{
    ATTR_F_MANDATORY, ATTR_F_VALID_OUTPUT, Attribute, IoctlHeader, UHW_IN, UHW_OUT, request,
};
use crate::log;
use crate::refusal::{OrRefuse, refuse, refuse_if};
use crate::spec::Result;
use crate::user;

/// The type of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttrType {
    /// Bytes from the application: minimum and maximum length.
    In(u16, u16),
    /// Bytes from the application: minimum length, and the length beyond which all
    /// bytes must be zero.
    InZeroTrailing(u16, u16),
    /// A buffer for bytes to the application: minimum length.
    Out(u16),
    /// A handle or a descriptor, in either direction.
    Id,
}

/// An attribute that a method accepts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    pub(super) id: u16,
    pub(super) attr_type: AttrType,
    pub(super) mandatory: bool,
}

/// Returns a mandatory attribute.
pub(super) const fn mandatory(id: u16, attr_type: AttrType) -> Spec {
    Spec {
        id,
        attr_type,
        mandatory: true,
    }
}

/// Returns an optional attribute.
pub(super) const fn optional(id: u16, attr_type: AttrType) -> Spec {
    Spec {
        id,
        attr_type,
        mandatory: false,
    }
}

/// A number that libibverbs sends as 4 or 8 bytes.
pub(super) const NUMBER: AttrType = AttrType::In(4, 8);
/// `UVERBS_ATTR_UHW()`: the driver's parts of request and reply.
pub(super) const UHW: [Spec; 2] = [
    optional(UHW_IN, AttrType::InZeroTrailing(0, u16::MAX)),
    optional(UHW_OUT, AttrType::Out(0)),
];

/// An attribute of the current command.
#[derive(Debug)]
struct PresentAttribute {
    attribute: Attribute,
    /// Address of the attribute in the application.
    address: u64,
    /// The bytes that it carries in.
    input: Vec<u8>,
}

/// The attributes of the current command.
#[derive(Debug)]
pub(super) struct Attributes {
    present: Vec<PresentAttribute>,
}

impl Attributes {
    /// Reads and checks the attributes after a header.
    ///
    /// # Errors
    /// The kernel's: `EPROTONOSUPPORT` for an unknown mandatory attribute, `EINVAL`
    /// for a wrong length, a duplicate or a missing attribute, `EOPNOTSUPP` for
    /// unknown bytes that are not zero, `EFAULT`.
    pub(super) fn read(header: &IoctlHeader, address: u64, lists: &[&[Spec]]) -> Result<Self> {
        let specs = || lists.iter().copied().flatten();
        let first = address
            .checked_add(size_of::<IoctlHeader>() as u64)
            .or_refuse(
                EFAULT,
                "the request does not end before the end of the address space",
            )?;
        let count = usize::from(header.num_attrs);
        let bytes = user::copy_in(first, count * size_of::<Attribute>())?;
        let mut present: Vec<PresentAttribute> = Vec::with_capacity(count);
        for (index, bytes) in bytes.chunks_exact(size_of::<Attribute>()).enumerate() {
            let attribute: Attribute = request(bytes);
            let Some(spec) = specs().find(|spec| spec.id == attribute.id) else {
                refuse_if(
                    attribute.flags & ATTR_F_MANDATORY != 0,
                    EPROTONOSUPPORT,
                    "the request has an attribute that the kernel does not know, and must",
                )?;
                continue;
            };
            refuse_if(
                attribute.flags & !(ATTR_F_MANDATORY | ATTR_F_VALID_OUTPUT) != 0
                    || attribute.reserved != 0
                    || present
                        .iter()
                        .any(|other| other.attribute.id == attribute.id),
                EINVAL,
                "an attribute is there twice, or has unknown flags",
            )?;
            let input = read_input(&attribute, spec.attr_type)?;
            let address = first + (index * size_of::<Attribute>()) as u64;
            present.push(PresentAttribute {
                attribute,
                address,
                input,
            });
        }
        let has = |id| present.iter().any(|it| it.attribute.id == id);
        refuse_if(
            specs().any(|spec| spec.mandatory && !has(spec.id)),
            EINVAL,
            "the request lacks an attribute",
        )?;
        Ok(Self { present })
    }

    pub(super) fn has(&self, id: u16) -> bool {
        self.find(id).is_some()
    }

    /// Returns the bytes of an attribute; empty if it is absent.
    pub(super) fn bytes(&self, id: u16) -> &[u8] {
        self.find(id).map_or(&[], |it| &it.input)
    }

    /// Returns a number of up to 8 bytes; 0 if the attribute is absent.
    pub(super) fn u64(&self, id: u16) -> u64 {
        request(self.bytes(id))
    }

    /// Returns a 32-bit number.
    ///
    /// # Errors
    /// `EINVAL` if it was sent as 64 bits and does not fit.
    pub(super) fn u32(&self, id: u16) -> Result<u32> {
        u32::try_from(self.u64(id)).or_refuse(EINVAL, "a number has more than 32 bits")
    }

    /// Returns a bit mask; 0 if the attribute is absent.
    ///
    /// # Errors
    /// `EINVAL` for bits outside `known`, as in the kernel's `uverbs_get_flags32`.
    pub(super) fn flags(&self, id: u16, known: u32) -> Result<u32> {
        let flags = self.u32(id)?;
        refuse_if(flags & !known != 0, EINVAL, "the flags have an unknown bit")?;
        Ok(flags)
    }

    /// Returns a structure; bytes that were not sent are zero.
    pub(super) fn structure<T: FromBytes + IntoBytes + KnownLayout>(&self, id: u16) -> T {
        request(self.bytes(id))
    }

    /// Returns a handle if the attribute is present.
    ///
    /// # Errors
    /// `EINVAL` if it is out of range.
    pub(super) fn optional_handle(&self, id: u16) -> Result<Option<u32>> {
        self.find(id)
            .map(|it| match u32::try_from(it.attribute.data) {
                Ok(handle) if i32::try_from(handle).is_ok() => Ok(handle),
                _ => Err(refuse(EINVAL, "a handle is out of range")),
            })
            .transpose()
    }

    /// Returns a handle.
    ///
    /// # Errors
    /// `EINVAL` if it is absent or out of range.
    pub(super) fn handle(&self, id: u16) -> Result<u32> {
        self.optional_handle(id)?
            .or_refuse(EINVAL, "the request lacks a handle")
    }

    /// Returns a file descriptor if the attribute is present.
    ///
    /// # Errors
    /// `EBADF` if it is out of range.
    pub(super) fn descriptor(&self, id: u16) -> Result<Option<i32>> {
        self.find(id)
            .map(|it| {
                i32::try_from(it.attribute.data)
                    .or_refuse(libc::EBADF, "a file descriptor is out of range")
            })
            .transpose()
    }

    /// Returns the address of an output buffer; 0 if the attribute is absent.
    pub(super) fn address(&self, id: u16) -> u64 {
        self.find(id).map_or(0, |it| it.attribute.data)
    }

    /// Returns the length of an output buffer; 0 if the attribute is absent.
    pub(super) fn output_len(&self, id: u16) -> u16 {
        self.find(id).map_or(0, |it| it.attribute.len)
    }

    /// Writes bytes to an output buffer. Bytes that do not fit are dropped, and the
    /// rest of the buffer is cleared.
    ///
    /// # Errors
    /// `EFAULT`.
    pub(super) fn write_output_bytes(&self, id: u16, bytes: &[u8]) -> Result<()> {
        let Some(it) = self.find(id) else {
            return Ok(());
        };
        user::copy_reply(it.attribute.data, it.attribute.len.into(), bytes)?;
        self.mark_valid(id)
    }

    /// Marks an output as written; libibverbs passes this on to memory checkers.
    ///
    /// # Errors
    /// `EFAULT`.
    pub(super) fn mark_valid(&self, id: u16) -> Result<()> {
        let Some(it) = self.find(id) else {
            return Ok(());
        };
        let flags = it.attribute.flags | ATTR_F_VALID_OUTPUT;
        user::copy_out(it.address + 4, flags.as_bytes())
    }

    /// Writes a structure or a number to an output buffer.
    ///
    /// # Errors
    /// `EFAULT`.
    pub(super) fn write_output<T: IntoBytes + Immutable + Debug>(
        &self,
        id: u16,
        value: &T,
    ) -> Result<()> {
        if self.has(id) {
            log::reply(|| format!("{value:?}"));
        }
        self.write_output_bytes(id, value.as_bytes())
    }

    /// Writes a new handle or descriptor to the attribute itself.
    ///
    /// # Errors
    /// `EFAULT`.
    pub(super) fn write_id(&self, id: u16, value: u32) -> Result<()> {
        log::reply(|| format!("handle {value}"));
        let Some(it) = self.find(id) else {
            return Ok(());
        };
        user::copy_out(it.address + 8, u64::from(value).as_bytes())
    }

    /// Returns the attributes that carry values in, as text: numbers by their value, others
    /// by their length.
    pub(super) fn describe(&self) -> String {
        let shown = self.present.iter().filter_map(|it| {
            let Attribute { id, len, data, .. } = it.attribute;
            match (it.input.len(), len) {
                (0, 0) => Some(format!("{id}: handle {data}")),
                // A buffer for a reply.
                (0, _) => None,
                (1..=8, _) => Some(format!("{id}: {}", request::<u64>(&it.input))),
                _ => Some(format!("{id}: {len} bytes")),
            }
        });
        shown.collect::<Vec<_>>().join(", ")
    }

    fn find(&self, id: u16) -> Option<&PresentAttribute> {
        self.present.iter().find(|it| it.attribute.id == id)
    }
}

const LENGTH: &str = "an attribute has a wrong length";

fn read_input(attribute: &Attribute, attr_type: AttrType) -> Result<Vec<u8>> {
    let len = attribute.len;
    let (min, max) = match attr_type {
        AttrType::In(min, max) => (min, max),
        AttrType::InZeroTrailing(min, _) => (min, u16::MAX),
        AttrType::Out(min) if len >= min => return Ok(Vec::new()),
        AttrType::Id if len == 0 => return Ok(Vec::new()),
        AttrType::Out(_) | AttrType::Id => return Err(refuse(EINVAL, LENGTH)),
    };
    refuse_if(len < min || len > max, EINVAL, LENGTH)?;
    let len = usize::from(len);
    let mut bytes = if len <= size_of::<u64>() {
        attribute.data.as_bytes()[..len].to_vec()
    } else {
        user::copy_in(attribute.data, len)?
    };
    if let AttrType::InZeroTrailing(_, known) = attr_type {
        let known = bytes.len().min(known.into());
        refuse_if(
            bytes[known..].iter().any(|byte| *byte != 0),
            EOPNOTSUPP,
            "an attribute has fields of a later kernel",
        )?;
        bytes.truncate(known);
    }
    Ok(bytes)
}
