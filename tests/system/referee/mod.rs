//! libmlx5 as the referee: what it and the engine make of the same must be
//! the same.

mod polls;
mod posts;
