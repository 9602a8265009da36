//! The application's side: builds commands byte by byte and sends them.

use std::sync::Arc;

use zerocopy::IntoBytes;

use super::backend::Recorder;
use crate::config::{Face, Link};
use crate::limits::Limits;
use crate::nic::spec::Result;
use crate::uverbs::abi::{
    ATTR_F_MANDATORY, Attribute, DRIVER_MLX5, IoctlHeader, Mlx5AllocUcontextReq, RDMA_VERBS_IOCTL,
    UHW_IN, UHW_OUT, method, object,
};
use crate::uverbs::{DeviceConfig, DeviceFile};

/// A command under construction. Inputs longer than 8 bytes and outputs live
/// in buffers of their own, as in libibverbs.
pub(super) struct Command {
    header: IoctlHeader,
    attributes: Vec<Attribute>,
    buffers: Vec<Vec<u8>>,
}

impl Command {
    pub(super) fn new(object_id: u16, method_id: u16) -> Self {
        let header = IoctlHeader {
            length: 0,
            object_id,
            method_id,
            num_attrs: 0,
            reserved1: 0,
            driver_id: DRIVER_MLX5,
            reserved2: 0,
        };
        Self {
            header,
            attributes: Vec::new(),
            buffers: Vec::new(),
        }
    }

    /// A command of the write interface in an ioctl.
    pub(super) fn write(number: u32, core: &[u8], reply: usize) -> Self {
        Self::new(object::DEVICE, method::DEVICE_INVOKE_WRITE)
            .input(2, &u64::from(number).to_ne_bytes())
            .input(0, core)
            .output(1, reply)
    }

    pub(super) fn attribute(mut self, id: u16, len: usize, data: u64) -> Self {
        let len = u16::try_from(len).unwrap();
        self.attributes.push(Attribute {
            id,
            len,
            flags: ATTR_F_MANDATORY,
            reserved: 0,
            data,
        });
        self
    }

    pub(super) fn input(mut self, id: u16, bytes: &[u8]) -> Self {
        if bytes.len() > 8 {
            self.buffers.push(bytes.to_vec());
            let address = self.buffers.last().unwrap().as_ptr() as u64;
            return self.attribute(id, bytes.len(), address);
        }
        let mut data = [0; 8];
        data[..bytes.len()].copy_from_slice(bytes);
        self.attribute(id, bytes.len(), u64::from_ne_bytes(data))
    }

    /// Puts other bytes in the place of an input of more than 8.
    pub(super) fn replace(mut self, id: u16, bytes: &[u8]) -> Self {
        self.buffers.push(bytes.to_vec());
        let address = self.buffers.last().unwrap().as_ptr() as u64;
        let found = self.attributes.iter_mut().find(|it| it.id == id);
        let attribute = found.expect("an input");
        assert_eq!(usize::from(attribute.len), bytes.len());
        attribute.data = address;
        self
    }

    pub(super) fn output(mut self, id: u16, len: usize) -> Self {
        self.buffers.push(vec![0xee; len]);
        let address = self.buffers.last_mut().unwrap().as_mut_ptr() as u64;
        self.attribute(id, len, address)
    }

    pub(super) fn id(self, id: u16, value: u32) -> Self {
        self.attribute(id, 0, value.into())
    }

    pub(super) fn flags(mut self, flags: u16) -> Self {
        self.attributes.last_mut().unwrap().flags = flags;
        self
    }

    pub(super) fn header(mut self, change: impl FnOnce(&mut IoctlHeader)) -> Self {
        change(&mut self.header);
        self
    }

    /// Sends it; the answer can then be looked at.
    pub(super) fn send(mut self, file: &Arc<DeviceFile>) -> Result<Answer> {
        self.header.num_attrs += u16::try_from(self.attributes.len()).unwrap();
        self.header.length +=
            u16::try_from(size_of::<IoctlHeader>() + self.attributes.as_bytes().len()).unwrap();
        let mut bytes = self.header.as_bytes().to_vec();
        bytes.extend_from_slice(self.attributes.as_bytes());
        file.ioctl(RDMA_VERBS_IOCTL, bytes.as_mut_ptr() as u64)?;
        Ok(Answer {
            bytes,
            _buffers: self.buffers,
        })
    }
}

/// A command after it was answered.
pub(super) struct Answer {
    bytes: Vec<u8>,
    _buffers: Vec<Vec<u8>>,
}

impl Answer {
    fn find(&self, id: u16) -> Attribute {
        self.bytes[size_of::<IoctlHeader>()..]
            .chunks_exact(size_of::<Attribute>())
            .map(crate::uverbs::abi::request::<Attribute>)
            .find(|attribute| attribute.id == id)
            .expect("sent")
    }

    /// The handle or descriptor answered.
    pub(super) fn id(&self, id: u16) -> u32 {
        u32::try_from(self.find(id).data).unwrap()
    }

    pub(super) fn output(&self, id: u16) -> Vec<u8> {
        let attribute = self.find(id);
        crate::uverbs::user::copy_in(attribute.data, attribute.len.into()).unwrap()
    }

    pub(super) fn u32(&self, id: u16) -> u32 {
        crate::uverbs::abi::request(&self.output(id))
    }

    pub(super) fn flags(&self, id: u16) -> u16 {
        self.find(id).flags
    }
}

/// A device file that was just opened.
pub(super) fn open() -> (Arc<DeviceFile>, Arc<Recorder>) {
    open_on(Link::Ib, Face::Ioctl)
}

pub(super) fn open_on(link: Link, face: Face) -> (Arc<DeviceFile>, Arc<Recorder>) {
    open_as(DeviceConfig {
        link,
        devices: 1,
        ports: 1,
        face,
        cqe_version: 1,
        limits: Limits::DEVICE,
    })
}

pub(super) fn open_as(config: DeviceConfig) -> (Arc<DeviceFile>, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    let backend: Arc<Recorder> = Arc::clone(&recorder);
    (
        Arc::new(DeviceFile::open(backend, 0, config).unwrap()),
        recorder,
    )
}

/// The request of libmlx5 44, with `flags` and `capabilities` as given.
pub(super) fn context_structure(flags: u32, lib_caps: u64) -> Mlx5AllocUcontextReq {
    Mlx5AllocUcontextReq {
        total_num_bfregs: 16,
        num_low_latency_bfregs: 4,
        flags,
        comp_mask: 0,
        max_cqe_version: 1,
        reserved0: 0,
        reserved1: 0,
        reserved2: 0,
        lib_caps,
    }
}

pub(super) fn context_request(flags: u32, lib_caps: u64) -> Command {
    let request = context_structure(flags, lib_caps);
    Command::new(object::DEVICE, method::DEVICE_GET_CONTEXT)
        .output(0, 4)
        .output(1, 8)
        .input(UHW_IN, request.as_bytes())
        .output(UHW_OUT, 72)
}

/// A device file with its context.
pub(super) fn open_context() -> (Arc<DeviceFile>, Arc<Recorder>) {
    open_context_on(Link::Ib)
}

pub(super) fn open_context_on(link: Link) -> (Arc<DeviceFile>, Arc<Recorder>) {
    let (file, recorder) = open_on(link, Face::Ioctl);
    context_request(0, 3).send(&file).unwrap();
    (file, recorder)
}
