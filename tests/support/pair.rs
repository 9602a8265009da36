//! Two connected ends, each driven by the engine or by libmlx5.

use std::ops::{Deref, DerefMut};

use super::engine_side::EngineSide;
use super::libmlx5::{Link, Shape};
use super::reference_side::ReferenceSide;
use super::side::{Side, connect};
use super::system::System;
use super::traffic::MEMORY;

/// The library that drives an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    Engine,
    Libmlx5,
}

/// Every combination with the engine in it, as (first end, second end).
const WITH_ENGINE: [[Driver; 2]; 3] = [
    [Driver::Engine, Driver::Engine],
    [Driver::Libmlx5, Driver::Engine],
    [Driver::Engine, Driver::Libmlx5],
];

/// Returns the combinations that the device supports. Engine with engine comes
/// first. libmlx5 drives mlx5 devices only, which an existing one need not be.
pub fn with_engine(system: &System) -> &'static [[Driver; 2]] {
    match system.is_stepped() {
        true => &WITH_ENGINE,
        false => &WITH_ENGINE[..1],
    }
}

/// Returns one end, not connected.
pub fn end(system: &System, driver: Driver, shape: Shape) -> Box<dyn Side> {
    match driver {
        Driver::Engine => Box::new(EngineSide::new(&system.device, shape, MEMORY)),
        Driver::Libmlx5 => Box::new(ReferenceSide::new(system.context(), shape, MEMORY)),
    }
}

/// Two connected ends, and the system that they belong to.
pub struct Pair {
    // The ends are dropped before the system, which then checks for violations.
    pub sides: [Box<dyn Side>; 2],
    pub system: System,
}

impl Pair {
    pub fn new(system: System, drivers: [Driver; 2], shape: Shape, link: &Link) -> Self {
        let mut sides = drivers.map(|driver| end(&system, driver, shape));
        connect(&mut sides, link);
        Pair { sides, system }
    }
}

impl Deref for Pair {
    type Target = [Box<dyn Side>; 2];

    fn deref(&self) -> &Self::Target {
        &self.sides
    }
}

impl DerefMut for Pair {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.sides
    }
}
