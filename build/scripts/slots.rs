//! The slots of the provider table, from the types that bindgen generates.

/// Returns `table! { SLOT: TYPE = CALL, … }`: each slot of the provider table, whose name ends in
/// `_func`, with the name of its call. C alone can define the call with a `va_list`.
///
/// Without rustfmt, which Debian's package of cargo does not have, bindgen writes everything in
/// one line, with spaces between all tokens.
pub(crate) fn table(abi: &str) -> String {
    let words = abi.split_whitespace().collect::<Vec<_>>().join(" ");
    let table = words.split_once("struct DAT_PROVIDER {");
    let members = table.and_then(|(_, rest)| rest.split_once('}'));
    let (members, _) = members.expect("the headers have the table");
    let slots = members.split("pub ").filter_map(|member| {
        let (slot, rest) = member.split_once(':')?;
        let (slot, kind) = (slot.trim(), rest.split(',').next()?.trim());
        let call = slot.strip_suffix("_func")?;
        (call != "handle_extendedop").then(|| format!("    {slot}: {kind} = dat_{call},\n"))
    });
    format!("table! {{\n{}}}\n", slots.collect::<String>())
}
