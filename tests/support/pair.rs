//! Two connected ends, each driven by the engine or by libmlx5.

use std::ops::{Deref, DerefMut};

use super::lib_side::LibSide;
use super::libmlx5::{Link, Shape};
use super::our_side::OurSide;
use super::side::{Side, connect};
use super::system::System;
use super::traffic::MEMORY;

/// Who drives an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    Engine,
    Libmlx5,
}

/// Every combination that has the engine in it, as (first end, second end).
pub const WITH_ENGINE: [[Driver; 2]; 3] = [
    [Driver::Engine, Driver::Engine],
    [Driver::Engine, Driver::Libmlx5],
    [Driver::Libmlx5, Driver::Engine],
];

/// One end, not connected.
pub fn end(system: &System, driver: Driver, shape: Shape) -> Box<dyn Side> {
    match driver {
        Driver::Engine => Box::new(OurSide::new(&system.device, shape, MEMORY)),
        Driver::Libmlx5 => Box::new(LibSide::new(&system.context, shape, MEMORY)),
    }
}

/// Two connected ends and the system they live in.
pub struct Pair {
    // The ends go before the system, which then looks for breaches.
    pub sides: [Box<dyn Side>; 2],
    pub system: System,
}

impl Pair {
    pub fn new(drivers: [Driver; 2], shape: Shape, link: &Link) -> Self {
        let system = System::stepped();
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
