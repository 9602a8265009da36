//! Nothing to link: the root package exists for the whole-system tests in
//! this folder (see `ARCHITECTURE.md`, "Tests").
