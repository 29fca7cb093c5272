//! The operators and helper functions that a block sees: its own and the standard ones.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use oplus_dsl::Ty;
use proc_macro2::TokenStream;

use crate::diagnostics::Diagnostics;
use crate::parse;
use crate::suggest::did_you_mean;
use crate::syntax::{Block, HelperItem, OperatorItem};

/// The text of the standard operators, the body of a `scan!`.
pub(crate) const OPERATORS: &str = include_str!("../standard/operators.rs");

/// The text of the standard functions, the body of a `scan!`.
pub(crate) const FUNCTIONS: &str = include_str!("../standard/functions.rs");

/// The text of the standard kernels, the body of a `scan!`.
pub const KERNELS: &str = include_str!("../standard/kernels.rs");

/// The text of the standard models, the body of a `scan!`.
pub const MODELS: &str = concat!(
    include_str!("../standard/models.rs"),
    include_str!("../standard/linear.rs"),
    include_str!("../standard/attention.rs"),
    include_str!("../standard/options.rs"),
    include_str!("../standard/packed.rs"),
    include_str!("../standard/delta.rs"),
);

/// The part of the models' text that holds rarer options, packed sequences with states, and recurrences of matrices.
pub(crate) const OPTIONS: &str = concat!(
    include_str!("../standard/options.rs"),
    include_str!("../standard/packed.rs"),
    include_str!("../standard/delta.rs"),
);

/// An operator to be instantiated with the types of its elements, and the helper functions that it sees.
#[derive(Clone)]
pub(crate) struct Template {
    /// The operator.
    pub(crate) item: Rc<OperatorItem>,
    /// The helper functions of its block.
    pub(crate) helpers: Rc<[HelperItem]>,
    /// Whether it is of the standard library, so that no token of the user's shows its body.
    pub(crate) standard: bool,
}

/// An operator's name and the types of its fields where it is used.
type Use = (String, Vec<Ty>);

/// The operators, functions and constants that a block can name.
pub(crate) struct Library {
    operators: Vec<Template>,
    /// The standard sum, whatever else is called so.
    pub(crate) sum: Option<Template>,
    /// The standard affine operator.
    pub(crate) affine: Option<Template>,
    /// The helper functions of the block.
    pub(crate) helpers: Rc<[HelperItem]>,
    /// The standard functions that are made of others.
    pub(crate) functions: Rc<[HelperItem]>,
    /// The helper functions that something called.
    inlined: RefCell<HashSet<String>>,
    /// Operators whose laws are broken already where they are declared.
    broken: RefCell<HashSet<String>>,
    /// The results of checking operators with fields of certain types: how they break their laws, if they do.
    uses: RefCell<HashMap<Use, Option<String>>>,
}

impl Library {
    /// A block's own operators, then the standard ones that it does not declare itself.
    pub(crate) fn new(block: &Block) -> Library {
        let helpers: Rc<[HelperItem]> = block.helpers.clone().into();
        let mut operators = templates(block, &helpers, false);
        let standard_block = standard_block();
        let standard = templates(&standard_block, &standard_block.helpers.clone().into(), true);
        let named = |name: &str| standard.iter().find(|template| template.item.name.text == name).cloned();
        let (sum, affine) = (named("Sum"), named("Affine"));
        let own = operators.len();
        for template in standard {
            if !operators[..own].iter().any(|own| own.item.name.text == template.item.name.text) {
                operators.push(template);
            }
        }
        let (inlined, broken, uses) = Default::default();
        Library { operators, sum, affine, helpers, functions: standard_functions(), inlined, broken, uses }
    }

    /// Remembers that a helper function was called, if it is one of the block's.
    pub(crate) fn mark_inlined(&self, helpers: &Rc<[HelperItem]>, name: &str) {
        if Rc::ptr_eq(helpers, &self.helpers) {
            self.inlined.borrow_mut().insert(name.to_owned());
        }
    }

    /// Whether a helper function was called.
    pub(crate) fn is_inlined(&self, name: &str) -> bool {
        self.inlined.borrow().contains(name)
    }

    /// Remembers that an operator breaks its laws where it is declared.
    pub(crate) fn mark_broken(&self, operator: &str) {
        self.broken.borrow_mut().insert(operator.to_owned());
    }

    /// Whether an operator breaks its laws where it is declared.
    pub(crate) fn is_broken(&self, operator: &str) -> bool {
        self.broken.borrow().contains(operator)
    }

    /// How an operator with fields of these types breaks its laws, found once.
    pub(crate) fn of_use(&self, name: &str, types: Vec<Ty>, find: impl FnOnce() -> Option<String>) -> Option<String> {
        self.uses.borrow_mut().entry((name.to_owned(), types)).or_insert_with(find).clone()
    }

    /// The operator of a name.
    pub(crate) fn operator(&self, name: &str) -> Option<&Template> {
        self.operators.iter().find(|template| template.item.name.text == name)
    }

    /// Did you mean one of the operators?
    pub(crate) fn suggest_operator(&self, wrong: &str) -> String {
        did_you_mean(wrong, self.operators.iter().map(|template| template.item.name.text.as_str()))
    }
}

fn templates(block: &Block, helpers: &Rc<[HelperItem]>, standard: bool) -> Vec<Template> {
    let template = |item: &OperatorItem| Template { item: Rc::new(item.clone()), helpers: helpers.clone(), standard };
    block.operators.iter().map(template).collect()
}

/// The standard operators. Their text is part of this crate and tested, so a mistake in it cannot reach a user.
fn standard_block() -> Block {
    block_of(OPERATORS)
}

/// The standard functions.
fn standard_functions() -> Rc<[HelperItem]> {
    block_of(FUNCTIONS).helpers.into()
}

fn block_of(text: &str) -> Block {
    let tokens: TokenStream = text.parse().unwrap_or_default();
    parse::block(tokens, &mut Diagnostics::default())
}

/// The standard functions that users may call; the others are parts of these.
pub(crate) const CALLED: [&str; 7] = ["expm1", "log2", "round", "erf", "gelu", "pow", "atan2"];
