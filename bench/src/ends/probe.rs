//! What a queue pair of the device would say, for interfaces that cannot ask their own.

use dat_engine::{
    ConnectOptions, ControlError, CqOptions, DataInOrder, Device, Endpoint, EndpointOptions,
    Transport,
};

/// A port on which queue pairs can be asked.
#[derive(Clone)]
pub(crate) struct Probe {
    pub(super) device: Device,
    pub(super) port: u8,
}

impl Probe {
    /// Connects two queue pairs of the port, and asks one of them.
    pub(super) fn data_in_order(&self) -> DataInOrder {
        // Only rdma_cm can connect queue pairs of iWARP.
        if self.device.info().transport == Transport::Iwarp {
            return DataInOrder::Unknown;
        }
        self.ask().unwrap_or_else(|error| {
            tracing::debug!("cannot ask for the order of data: {error}");
            DataInOrder::Unknown
        })
    }

    fn ask(&self) -> Result<DataInOrder, ControlError> {
        let domain = self.device.alloc_pd()?;
        let queue = self.device.create_cq(&CqOptions {
            depth: 4,
            ..CqOptions::default()
        })?;
        let create = || -> Result<Endpoint, ControlError> {
            domain.create_endpoint(&EndpointOptions {
                send_depth: 1,
                recv_depth: 1,
                ..EndpointOptions::new(&queue, &queue)
            })
        };
        let (mut near, mut far) = (create()?, create()?);
        let addresses = (
            near.local_address(self.port)?,
            far.local_address(self.port)?,
        );
        let options = ConnectOptions {
            port: self.port,
            ..ConnectOptions::default()
        };
        near.connect(&addresses.1, &options)?;
        far.connect(&addresses.0, &options)?;
        Ok(near.data_in_order())
    }
}
