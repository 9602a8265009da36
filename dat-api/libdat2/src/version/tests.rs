use super::*;

#[test]
fn endpoint_masks_name_the_same_members() {
    for (mask, fields) in [
        (DAT_EP_FIELD_IA_HANDLE, EpFields::IA),
        (DAT_EP_FIELD_EP_STATE, EpFields::STATE),
        (DAT_EP_FIELD_LOCAL_IA_ADDRESS_PTR, EpFields::LOCAL_ADDRESS),
        (DAT_EP_FIELD_PZ_HANDLE, EpFields::PZ),
        (DAT_EP_FIELD_RECV_EVD_HANDLE, EpFields::RECV_EVD),
        (DAT_EP_FIELD_REQUEST_EVD_HANDLE, EpFields::REQUEST_EVD),
        (DAT_EP_FIELD_CONNECT_EVD_HANDLE, EpFields::CONNECT_EVD),
        (DAT_EP_FIELD_SRQ_HANDLE, EpFields::SRQ),
        (DAT_EP_FIELD_EP_ATTR_SERVICE_TYPE, EpFields::SERVICE_TYPE),
        (
            DAT_EP_FIELD_EP_ATTR_MAX_RDMA_WRITE_IOV,
            EpFields::MAX_RDMA_WRITE_IOV,
        ),
        (
            DAT_EP_FIELD_EP_ATTR_PROVIDER_SPECIFIC_ATTR,
            EpFields::PROVIDER_ATTRIBUTES,
        ),
        (DAT_EP_FIELD_ALL & !DAT_EP_FIELD_COMM, EpFields::all()),
        (0, EpFields::empty()),
    ] {
        assert_eq!(ep_fields(mask).expect("a mask"), fields, "{mask:#x}");
    }
    for wrong in [
        DAT_EP_FIELD_COMM,
        DAT_EP_FIELD_ALL,
        DAT_EP_FIELD_ALL + 1,
        1 << 63,
    ] {
        let error = ep_fields(wrong).expect_err("no member of an endpoint");
        assert_eq!(error.code().subtype(), Some(Subtype::InvalidArg2));
    }
}

#[test]
fn long_lengths_become_the_longest() {
    assert_eq!(length(u64::MAX), u32::MAX);
    assert_eq!(length(1 << 32), u32::MAX);
    assert_eq!(length(7), 7);
    let segment = LmrSegment {
        context: 3,
        address: 1 << 40,
        length: 9,
    };
    let given = triplet(&segment);
    // SAFETY: a variable of this function.
    assert_eq!(unsafe { local_segments(&raw const given)(0) }, segment);
}
