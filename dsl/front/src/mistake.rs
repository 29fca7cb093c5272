//! The catalogue of messages: everything that can be wrong with a `scan!` block, one entry each.
//!
//! A message is one line: what is wrong, then after a semicolon what to write instead. Each entry has compile-fail tests
//! `tests/ui/<code>.rs` or `<code>--<variant>.rs`, where the code is the entry's name in kebab case; a test of this list
//! keeps it so.

use std::fmt;

/// Declares [`Mistake`] with its messages and codes from one table.
macro_rules! catalogue {
    ($($(#[$doc:meta])* $name:ident { $($field:ident),* } $code:literal $text:literal)*) => {
        /// The mistake and what to write instead; the fields are the words that vary.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the message names its fields")]
        pub enum Mistake {
            $($(#[$doc])* $name { $($field: String),* },)*
        }

        impl Mistake {
            /// The code of every entry, in the order of the catalogue.
            pub const CODES: &'static [&'static str] = &[$($code),*];

            /// The entry's name in kebab case.
            pub fn code(&self) -> &'static str {
                match self {
                    $(Mistake::$name { .. } => $code,)*
                }
            }
        }

        impl fmt::Display for Mistake {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Mistake::$name { $($field),* } => write!(f, $text),)*
                }
            }
        }
    };
}

catalogue! {
    // ---- syntax
    /// A token where another was expected.
    Unexpected { expected, found } "unexpected"
        "expected {expected}, found {found}"
    /// A construct of Rust that the language leaves out.
    Unsupported { what, instead } "unsupported"
        "{what} not part of `scan!`; {instead}"
    /// A literal that is not a number or a truth value.
    BadLiteral { literal } "bad-literal"
        "`{literal}` is not a number of this language; write an integer such as `2` or a float such as `0.5`, without suffix, and convert with `as`"
    /// `a < b < c`.
    ChainedComparison {} "chained-comparison"
        "comparisons do not chain; write `a < b && b < c`"
    /// Too much nesting for one expression.
    TooDeep {} "too-deep"
        "this expression is nested too deeply; name a part of it with `let`"
    /// Too many operations after inlining.
    TooLarge { name } "too-large"
        "`{name}` has too many operations after its helper functions are inlined; split it into several kernels"
    /// An item that is neither operator nor function.
    UnknownItem { found } "unknown-item"
        "expected an item, found {found}; write `op Name(…) {{ … }}`, or `fn name(…) -> (…) {{ … }}`"
    /// A clause of an operator that does not exist.
    UnknownClause { found } "unknown-clause"
        "expected a clause of the operator, found {found}; write `identity (…);`, `combine(l, r) (…);` or `gauge field;`"
    /// An operator without identity or combine.
    MissingClause { operator, clause } "missing-clause"
        "operator `{operator}` has no {clause}"
    /// A clause that stands twice.
    DuplicateClause { operator, clause } "duplicate-clause"
        "operator `{operator}` already has this clause; write `{clause}` once"
    /// An element type that does not exist.
    UnknownType { name, hint } "unknown-type"
        "there is no element type `{name}`{hint}; the types are f64, f32, bf16, f16, i32, i64, u32, u64 and bool"
    /// A kernel's parameter or output without a type.
    MissingType { name } "missing-type"
        "`{name}` needs its axes; write `{name}: [L]` for the call's type, `{name}: f32[L]` for a fixed one, or `{name}: f32` for a scalar"
    /// A kernel without outputs.
    NoOutputs { kernel } "no-outputs"
        "kernel `{kernel}` has no outputs; write them as `-> (y: [L])`"
    /// `-> f32[L]`.
    UnnamedOutput { ty } "unnamed-output"
        "outputs have names, to which the body assigns; write `-> (y: {ty})` here and `y = …;` in the body"
    // ---- names
    /// A word with a meaning of its own used as a name.
    Reserved { name } "reserved"
        "`{name}` has a meaning in `scan!` already; choose another name"
    /// Two things of one name.
    Duplicate { what, name } "duplicate"
        "{what} `{name}` is already declared; choose another name"
    /// Two generated Rust items of one name.
    ItemClash { item, name, other } "item-clash"
        "{item} generates the Rust item `{name}`, which {other} generates too; rename one of them"
    /// A value that does not exist.
    UnknownName { name, hint } "unknown-name"
        "there is no value `{name}` here{hint}"
    /// A function that does not exist.
    UnknownFunction { name, hint } "unknown-function"
        "there is no function `{name}`{hint}"
    /// An operator that does not exist.
    UnknownOperator { name, hint } "unknown-operator"
        "there is no operator `{name}`{hint}"
    /// A field that an operator lacks.
    UnknownField { operator, field, fields } "unknown-field"
        "operator `{operator}` has no field `{field}`; its fields are {fields}"
    /// An axis that no parameter has.
    UnknownAxis { axis, hint } "unknown-axis"
        "no parameter has an axis `{axis}`, so its size is not known{hint}"
    /// An argument that should be an axis.
    NotAnAxis { function } "not-an-axis"
        "the first argument of `{function}` must be the name of an axis; write `{function}(L, …)` with an axis of the parameters"
    /// An axis used as a value.
    AxisAsValue { axis } "axis-as-value"
        "`{axis}` is an axis, not a value; write `index({axis})` for the position along it or `size({axis})` for its size"
    /// A function used as a value.
    FunctionAsValue { name } "function-as-value"
        "`{name}` is a function; call it as `{name}(…)`"
    /// An operator outside scan and reduce.
    OperatorAsValue { name } "operator-as-value"
        "`{name}` is an operator; use it as `scan(L, {name}(…))` or `reduce(L, {name}(…))`"
    /// A call of something that is not a name.
    NotCallable {} "not-callable"
        "only functions can be called; write the function's name before the parentheses"
    /// A helper function that calls itself.
    Recursion { name } "recursion"
        "`{name}` calls itself, but helper functions are inlined; a recurrence is a `scan`"
    /// `.field` on a plain value.
    FieldOfValue { field } "field-of-value"
        "this value has no fields; `.{field}` is taken from the result of `scan` or `reduce`"
    // ---- counts
    /// A call with the wrong number of arguments.
    ArgumentCount { usage, given } "argument-count"
        "this call has {given} without a name; write `{usage}`"
    /// A named argument that a function lacks.
    UnknownArgument { function, argument, known } "unknown-argument"
        "`{function}` has no argument `{argument}`; {known}"
    /// A named argument that stands twice.
    DuplicateArgument { argument } "duplicate-argument"
        "`{argument}` is given twice; keep one of them"
    /// An identity of the wrong length.
    IdentityCount { operator, expected, given } "identity-count"
        "the identity of `{operator}` needs one value per field, {expected}, but {given} given"
    /// A combination of the wrong length.
    CombineCount { operator, expected, given } "combine-count"
        "`combine` of `{operator}` must give one value per field, {expected}, but {given} given"
    /// Elements of the wrong number.
    ElementCount { operator, expected, given } "element-count"
        "operator `{operator}` takes one element per field, {expected}, but {given} given"
    /// A pattern that does not fit its value.
    PatternCount { expected, given } "pattern-count"
        "the pattern has {expected}, but the value has {given}"
    /// A helper whose body disagrees with its signature.
    ResultCount { function, expected, given } "result-count"
        "`{function}` announces {expected}, but its body gives {given}"
    /// A tuple where one value is needed.
    TupleAsValue { count } "tuple-as-value"
        "this has {count} where one is needed; take them apart with `let (x, y) = …;`"
    /// A state of several fields where one value is needed.
    StateAsValue { fields, payload } "state-as-value"
        "this is a state with the fields {fields} where one value is needed; take one of them, as in `.{payload}`"
    /// A block without a value.
    NoValue {} "no-value"
        "this block gives no value; end it with an expression without a semicolon"
    /// A kernel that ends in an expression.
    KernelValue { kernel } "kernel-value"
        "a kernel gives its results by assignment; write `output = …;` for the outputs of `{kernel}`"
    /// A statement that assigns in a helper function or an operator.
    AssignOutsideKernel { name } "assign-outside-kernel"
        "only a kernel's outputs are assigned; write `let {name} = …;`"
    /// Too many fields.
    FieldCount { operator } "field-count"
        "operator `{operator}` must have between 1 and 31 fields"
    // ---- operators with a state of their own
    /// Several states, or none, after `->`.
    StateCount { operator } "state-count"
        "operator `{operator}` must have one state after `->`; write it as `-> (s: [V, K])`, and a second one as another operator"
    /// A clause that operators with a state do not have.
    StateClause { operator, clause } "state-clause"
        "`{clause}` has no meaning for `{operator}`, whose state begins at 0 or at `init`; leave it out"
    /// The element type of a field of an operator with a state.
    StateType { operator, field } "state-type"
        "the numbers of `{operator}` have one type, that of the elements; write the axes of `{field}` alone, as in `{field}: [K]`"
    /// Axes of a field of an operator without a state.
    FieldAxes { operator, field } "field-axes"
        "field `{field}` has axes, but two states of `{operator}` combine number by number; declare the state that elements act on, as in `op {operator}({field}: [K]) -> (s: [V, K])`, or leave the axes out"
    /// A function over an axis where there is none.
    CombineFunction { function, hint } "combine-function"
        "`{function}` has no meaning here; {hint}"
    /// A formula that is not one of the state's matrix product.
    Transition { operator, reason } "transition"
        "`combine` of `{operator}` must be products of the state with values, sums of such products over one axis of the state, and values without it, but {reason}"
    /// An element along an axis that its field does not have.
    ElementAxis { operator, field, axis } "element-axis"
        "field `{field}` of `{operator}` does not vary along `{axis}`, but this element does; write `{field}: [{axis}]` in the operator, or reduce the element"
    /// An axis of an operator that the kernel lacks.
    OperatorAxis { operator, axis } "operator-axis"
        "`{operator}` has an axis `{axis}`, which no parameter has; say which axis takes its place, as in `{operator}(…, {axis} = N)`"
    /// Two axes of an operator in one place.
    OperatorAxes { operator, first, second, axis } "operator-axes"
        "axes `{first}` and `{second}` of `{operator}` are both `{axis}` here; give each of them an axis of its own"
    // ---- scans and reductions
    /// The second argument of a scan or a reduction is not an operator.
    NotAnOperator { function } "not-an-operator"
        "the second argument of `{function}` must be an operator applied to its elements; write `{function}(L, Sum(x))` or name another operator"
    /// A wrapper other than `segmented`.
    UnknownWrapper { name } "unknown-wrapper"
        "`{name}` does not wrap operators; write `segmented(Operator)(elements)`"
    /// `segmented` without segments.
    NoSegments {} "no-segments"
        "a segmented scan needs its segments; add `reset = flags` or `offsets = cu_seqlens`"
    /// Segments without `segmented`.
    SegmentsWithoutWrapper { argument, operator } "segments-without-wrapper"
        "`{argument}` belongs to a segmented scan; write `segmented({operator})(…)`"
    /// `reset` beside `offsets`.
    TwoSegmentations {} "two-segmentations"
        "`reset` and `offsets` both say where segments begin; keep one of them"
    /// A reduction of a segmented operator.
    SegmentedReduce {} "segmented-reduce"
        "`reduce` gives one result for all segments; use `scan` with `segmented` instead, or leave `segmented` out"
    /// `init` beside `offsets` whose number of sequences is not known.
    InitWithOffsets {} "init-with-offsets"
        "a state for every sequence needs the number of sequences; write the offsets as `cu_seqlens: i64[S + 1]` and the state as `h0: state[S]`"
    /// A position of each sequence whose number is not known.
    OffsetsEnds {} "offsets-ends"
        "a value for every sequence needs the number of sequences; write the offsets as `cu_seqlens: i64[S + 1]`"
    /// One init for an operator with several payload fields.
    AmbiguousInit { operator, field } "ambiguous-init"
        "`{operator}` has no single payload field that `init` could mean; name the fields, as in `init = ({field}: …)`"
    /// An operator's identity is not a constant.
    IdentityNotConstant { operator } "identity-not-constant"
        "the identity of `{operator}` must be made of literals, `inf` and `pi`"
    // ---- axes
    /// An axis that only optional parameters have.
    OptionalAxis { axis } "optional-axis"
        "only parameters that may be left out have axis `{axis}`, so its size may be unknown; give a required parameter this axis"
    /// A reduction or selection over an axis that the value lacks.
    AxisNotPresent { function, axis, axes } "axis-not-present"
        "nothing here varies along `{axis}`, there is {axes}; `{function}` over `{axis}` needs an operand with that axis"
    /// A state or a fill that has the axis it must not have.
    ExtraAxis { argument, function, axis } "extra-axis"
        "{argument} of `{function}` is one value for all of `{axis}`, but this varies along `{axis}`; take one position of it with `first` or `last`"
    /// An output whose value has more axes.
    OutputAxis { output, axis } "output-axis"
        "the value varies along `{axis}`, which output `{output}` does not have; reduce it with `sum({axis}, …)` or add `{axis}` to the output's axes"
    /// An axis twice in one type.
    DuplicateAxis { axis } "duplicate-axis"
        "axis `{axis}` stands twice in this type; give the second one another name"
    /// Too many axes.
    TooManyAxes { kernel } "too-many-axes"
        "kernel `{kernel}` has more than 64 axes; split it"
    /// Offsets that are not a list.
    OffsetsAxes { found } "offsets-axes"
        "`offsets` must be a parameter of integers with one axis of its own, such as `cu_seqlens: i32[S]`; this is {found}"
    // ---- types
    /// Two operands of different kinds.
    TypeMismatch { function, left, right, hint } "type-mismatch"
        "`{function}` cannot mix {left} with {right}; {hint}"
    /// An operand of a type that the function does not take.
    OperandType { function, expected, found, hint } "operand-type"
        "`{function}` takes {expected}, but this is {found}; {hint}"
    /// A condition that is not a truth value.
    ConditionType { found } "condition-type"
        "a condition is a `bool`, but this is {found}; compare it, as in `x != 0`"
    /// A literal that the type cannot hold.
    LiteralType { literal, ty } "literal-type"
        "`{literal}` does not fit {ty}, the type it has here; write another number, or convert the operand it meets with `as`"
    /// An output that stores another type.
    OutputType { output, elem, found, cast } "output-type"
        "output `{output}` stores {elem}, but this is {found}; convert it with `as {cast}`"
    /// A field whose combination has another type.
    FieldType { field, ty, found, cast } "field-type"
        "field `{field}` is {ty}, but `combine` gives {found} for it; convert it with `as {cast}`"
    /// An element whose type the field does not take.
    ElementType { operator, field, ty, what, found, cast } "element-type"
        "field `{field}` of `{operator}` is {ty}, but this {what} is {found}; convert it with `as {cast}`"
    /// Elements of types that an operator's body does not take.
    ElementTypes { operator, types, reason } "element-types"
        "operator `{operator}` does not take elements of type {types}: {reason}"
    /// An output of the call's type where no parameter has it.
    CallType { tensor } "call-type"
        "no parameter takes the call's type, so the type of `{tensor}` is not known; write one, as in `{tensor}: f32[L]`"
    /// A power that is not a literal integer.
    NotALiteral { what } "not-a-literal"
        "{what} must be a literal, such as `2`"
    // ---- outputs
    /// A gauge that is not a float.
    GaugeType { field, found } "gauge-type"
        "a gauge must be a float, but field `{field}` is {found}; leave `gauge {field};` out"
    /// An output that is never assigned.
    OutputMissing { output } "output-missing"
        "output `{output}` is never assigned; add `{output} = …;`"
    /// An output assigned twice.
    OutputTwice { output } "output-twice"
        "output `{output}` is already assigned; keep one assignment"
    /// An assignment to something that is not an output.
    NotAnOutput { name, hint } "not-an-output"
        "`{name}` is not an output of this kernel{hint}; write `let {name} = …;` for an intermediate value"
    // ---- laws
    /// A law that a counter-example breaks.
    Law { message, hint } "law"
        "{message}; {hint}"
    /// An operator whose laws hold for its declared types, but not for those of its elements.
    ElementLaws { operator, types, message } "element-laws"
        "operator `{operator}` does not keep its laws for elements of type {types}: {message}; convert the elements, as in `x as f64`, or declare an operator for this type"
    /// An error of the program's verifier that the front end had not found.
    Invalid { message } "invalid"
        "this is not a valid program: {message}"
}
