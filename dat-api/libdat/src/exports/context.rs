//! Calls for objects of any kind: consumer context and handle type.

use dat_api::Subtype;

use crate::abi::*;
use crate::face::call::{Any, call};
use crate::face::output::Out;

call!(
    dat_set_consumer_context,
    |object: Any, context: DAT_CONTEXT| {
        // SAFETY: any 64 bits are a number.
        match object.handle.set_context(unsafe { context.as_64 }) {
            true => Ok(()),
            false => Err(object.gone()),
        }
    }
);

call!(
    dat_get_consumer_context,
    |object: Any, context: Out<DAT_CONTEXT>| {
        let place = context.required(Subtype::InvalidArg2)?;
        let as_64 = object.handle.context().ok_or_else(|| object.gone())?;
        place.set(DAT_CONTEXT { as_64 });
        Ok(())
    }
);

call!(
    dat_get_handle_type,
    |object: Any, handle_type: Out<DAT_HANDLE_TYPE>| {
        // `Kind` has the numbers of the header.
        handle_type
            .required(Subtype::InvalidArg2)?
            .set(object.kind as DAT_HANDLE_TYPE);
        Ok(())
    }
);
