//! The bindings, and the check of the installed rdma-core that their build makes.

mod exports;
mod versions;
