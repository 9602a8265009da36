//! The facts: what the files in `facts/` state about the ABI.

const VALUES: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/abi/facts/values.txt"
));
const LAYOUTS: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/abi/facts/layouts.txt"
));
const CALLS: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/abi/facts/calls.txt"
));

/// An integer: an enumerator, or a macro of `size` bytes.
pub(crate) struct Value {
    pub(crate) name: &'static str,
    pub(crate) value: i128,
    /// The enumeration; `None` for a macro.
    pub(crate) of: Option<&'static str>,
    /// Size of the macro's type in bytes.
    pub(crate) size: Option<usize>,
}

/// A struct or a union: its size, alignment and members.
#[derive(Debug, PartialEq)]
pub(crate) struct Layout {
    pub(crate) name: &'static str,
    pub(crate) size: usize,
    pub(crate) align: usize,
    /// Name, offset, size.
    pub(crate) members: Vec<(&'static str, usize, usize)>,
}

/// A function or a pointer to one.
pub(crate) struct Call {
    pub(crate) name: &'static str,
    pub(crate) result: &'static str,
    pub(crate) parameters: Vec<&'static str>,
}

/// Returns the lines of a file without comments and blank lines.
fn lines(file: &'static str) -> impl Iterator<Item = &'static str> {
    file.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn number<T: std::str::FromStr>(word: &str) -> T {
    word.parse()
        .unwrap_or_else(|_| panic!("{word} is not a number"))
}

/// Returns every enumerator and integer macro.
pub(crate) fn values() -> Vec<Value> {
    let mut values = Vec::new();
    let mut of = None;
    for line in lines(VALUES) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, value, size) = match words[..] {
            ["enum", name, _] => {
                of = Some(name);
                continue;
            }
            ["macro", name, value, size] => (name, value, Some(number(size))),
            ["pointer" | "text", ..] => continue,
            [name, value] if line.starts_with(' ') => (name, value, None),
            _ => panic!("{line}"),
        };
        values.push(Value {
            name,
            value: number(value),
            of: of.filter(|_| size.is_none()),
            size,
        });
    }
    values
}

/// Returns macros that are not integers, of one kind: `pointer` or `text`.
pub(crate) fn other_macros(kind: &str) -> Vec<(&'static str, &'static str)> {
    let macros: Vec<_> = lines(VALUES)
        .filter_map(|line| line.strip_prefix(kind)?.trim().split_once(' '))
        .collect();
    assert!(!macros.is_empty(), "none of kind {kind}");
    macros
}

/// Returns the size of every type that is not a struct, a union or a function
/// pointer.
pub(crate) fn types() -> Vec<(&'static str, usize)> {
    let plain = lines(LAYOUTS).filter_map(|line| line.strip_prefix("type "));
    let enums = lines(VALUES).filter_map(|line| line.strip_prefix("enum "));
    plain
        .chain(enums)
        .map(|line| line.split_once(' ').expect("name and size"))
        .map(|(name, size)| (name, number(size)))
        .collect()
}

/// Returns every struct and union.
pub(crate) fn layouts() -> Vec<Layout> {
    let mut layouts: Vec<Layout> = Vec::new();
    for line in lines(LAYOUTS) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["type", ..] if !line.starts_with(' ') => {}
            ["struct" | "union", name, size, align] => layouts.push(Layout {
                name,
                size: number(size),
                align: number(align),
                members: Vec::new(),
            }),
            [name, offset, size] => layouts
                .last_mut()
                .expect("members follow their struct")
                .members
                .push((name, number(offset), number(size))),
            _ => panic!("{line}"),
        }
    }
    layouts
}

/// Returns functions (`call`) or the types of pointers to them (`pointer`).
pub(crate) fn calls(kind: &str) -> Vec<Call> {
    lines(CALLS)
        .filter_map(|line| line.strip_prefix(kind)?.strip_prefix(' '))
        .map(|line| {
            let (name, rest) = line.split_once(": ").expect("a colon");
            let (result, rest) = rest.split_once(" (").expect("parameters");
            let (parameters, _level) = rest.rsplit_once(')').expect("a closing parenthesis");
            Call {
                name,
                result,
                parameters: parameters.split(", ").collect(),
            }
        })
        .collect()
}

/// Returns the names of all that the library exports.
pub(crate) fn exports() -> impl Iterator<Item = &'static str> {
    lines(CALLS).filter_map(|line| {
        let (kind, rest) = line.split_once(' ')?;
        let name = rest.split([':', ' ']).next()?;
        matches!(kind, "call" | "own" | "export").then_some(name)
    })
}

/// Returns the calls of the provider table: member and type.
pub(crate) fn slots() -> Vec<(&'static str, &'static str)> {
    lines(CALLS)
        .filter_map(|line| line.strip_prefix("slot ")?.split_once(' '))
        .collect()
}

#[test]
fn the_facts_are_all_there() {
    let values = values();
    let enumerators = values.iter().filter(|value| value.of.is_some()).count();
    let table = layouts().pop().expect("the last one");
    assert_eq!(table.name, "DAT_PROVIDER");
    let counted = [
        enumerators,
        values.len() - enumerators,
        layouts().len(),
        calls("call").len(),
        calls("pointer").len(),
        slots().len(),
        table.members.len(),
    ];
    assert_eq!(counted, crate::abi::version::FACTS);
}
