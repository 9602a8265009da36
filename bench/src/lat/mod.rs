//! temp
mod link;
#[cfg(test)]
mod loop_tests;
mod meter;
mod patience;
mod read;
mod send;
mod side;
mod window;
mod write;
