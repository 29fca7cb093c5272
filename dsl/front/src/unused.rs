//! Unused declarations of a block: parameters, `let`s, helper functions, private operators.
//!
//! A stable macro cannot give warnings. It can give rustc an item that rustc itself warns about: a variable or a function
//! of the same name that nothing uses, on the user's token. Such a warning can be allowed like any other, by `#[allow]` or
//! by an underscore in front of the name.

use std::collections::{HashMap, HashSet};

use proc_macro2::{Ident, TokenStream};
use quote::{quote, quote_spanned};

use crate::syntax::{Argument, Block, Body, Expr, ExprKind, Head, HelperItem, KernelItem, Name, Statement};

/// Items that rustc warns about, for everything in a correct block that nothing uses.
pub(crate) fn warnings(block: &Block) -> TokenStream {
    let mut uses = Uses::default();
    let mut warnings = TokenStream::new();
    for item in &block.operators {
        item.identity.iter().flat_map(|values| &values.list).for_each(|value| uses.expr(value));
        if let Some(combine) = &item.combine {
            [&combine.left, &combine.right].into_iter().for_each(|name| uses.declare(name, Kind::Silent));
            uses.body(&combine.body);
        }
        warnings.extend(uses.variables(&allowed(&item.head)));
    }
    for item in &block.helpers {
        uses.helper(item);
        warnings.extend(uses.variables(&TokenStream::new()));
    }
    for item in &block.kernels {
        uses.kernel(item);
        warnings.extend(uses.variables(&allowed(&item.head)));
    }
    warnings.extend(block.helpers.iter().filter(|item| !uses.named.contains(&item.name.text)).map(|item| {
        let name = &item.name.ident;
        // All on the user's token: rustc is silent about what a macro of another crate declares.
        quote_spanned!(name.span()=> const _: () = { fn #name() {} };)
    }));
    let private = block.operators.iter().filter(|item| item.head.visibility.is_empty());
    warnings.extend(private.filter(|item| !uses.named.contains(&item.name.text)).map(|item| {
        let (name, allowed) = (&item.name.ident, allowed(&item.head));
        quote_spanned!(name.span()=> const _: () = { #allowed struct #name; };)
    }));
    warnings
}

/// The attributes of an item that set lints.
fn allowed(head: &Head) -> TokenStream {
    let tokens: Vec<_> = head.attributes.clone().into_iter().collect();
    let is_lint = |pair: &&[proc_macro2::TokenTree]| {
        let text = pair.get(1).map(ToString::to_string).unwrap_or_default();
        let text = text.trim_start_matches(['[', ' ']);
        ["allow", "expect", "warn", "deny", "forbid", "cfg"].iter().any(|word| text.starts_with(word))
    };
    tokens.chunks(2).filter(is_lint).flatten().cloned().collect()
}

/// How rustc is made to warn about an unused name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A warning.
    Loud,
    /// No warning: outputs and the operands of `combine`.
    Silent,
}

/// A name that is declared.
struct Declared {
    name: String,
    ident: Ident,
    kind: Kind,
    is_used: bool,
}

/// The names in sight of one item after the other, and the names that were used.
#[derive(Default)]
struct Uses {
    declared: Vec<Declared>,
    /// The declarations in sight.
    open: Vec<usize>,
    /// By name, what it means from the outermost declaration to the innermost.
    scope: HashMap<String, Vec<usize>>,
    /// The names that mean none of these: operators, functions, axes.
    named: HashSet<String>,
}

impl Uses {
    /// Items about the unused variables of the item that ends here.
    fn variables(&mut self, allowed: &TokenStream) -> TokenStream {
        self.scope.clear();
        self.open.clear();
        let declared = std::mem::take(&mut self.declared);
        let unused = declared.into_iter().filter(|name| name.kind == Kind::Loud && !name.is_used);
        unused.map(|Declared { ident, .. }| quote!(#allowed const _: fn() = || { let #ident = 0_i32; };)).collect()
    }

    fn declare(&mut self, name: &Name, kind: Kind) {
        self.scope.entry(name.text.clone()).or_default().push(self.declared.len());
        self.open.push(self.declared.len());
        self.declared.push(Declared { name: name.text.clone(), ident: name.ident.clone(), kind, is_used: false });
    }

    fn helper(&mut self, item: &HelperItem) {
        item.params.iter().for_each(|name| self.declare(name, Kind::Loud));
        self.body(&item.body);
    }

    /// A parameter that gives an axis its size is used where that axis is.
    fn kernel(&mut self, item: &KernelItem) {
        let outer = std::mem::take(&mut self.named);
        item.params.iter().for_each(|param| self.declare(&param.name, Kind::Loud));
        self.statements(&item.body);
        let mut known: HashSet<&str> = HashSet::new();
        for (param, declared) in item.params.iter().zip(&self.declared) {
            if declared.is_used {
                known.extend(param.axes.iter().map(|axis| axis.text.as_str()));
            }
        }
        let stored = item.outputs.iter().flat_map(|output| &output.axes).map(|axis| axis.text.as_str());
        let needed: HashSet<&str> = self.named.iter().map(String::as_str).chain(stored).collect();
        for (param, declared) in item.params.iter().zip(&mut self.declared) {
            declared.is_used |= param.axes.iter().any(|axis| {
                let axis = axis.text.as_str();
                needed.contains(axis) && !known.contains(axis)
            });
        }
        self.named.extend(outer);
    }

    /// A block; its names end with it.
    fn body(&mut self, body: &Body) {
        let outer = self.open.len();
        self.statements(body);
        for index in self.open.drain(outer..) {
            self.scope.get_mut(&self.declared[index].name).map(Vec::pop);
        }
    }

    fn statements(&mut self, body: &Body) {
        for statement in &body.statements {
            match statement {
                Statement::Let(pattern, value) => {
                    self.expr(value);
                    pattern.names().into_iter().for_each(|name| self.declare(name, Kind::Loud));
                }
                Statement::Assign(pattern, value) => {
                    self.expr(value);
                    pattern.names().into_iter().for_each(|name| self.declare(name, Kind::Silent));
                }
            }
        }
        body.value.iter().for_each(|value| self.expr(value));
    }

    fn expr(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Wrong | ExprKind::Literal(_) => {}
            ExprKind::Name(name) => self.name(name),
            ExprKind::Tuple(list) => list.iter().for_each(|value| self.expr(value)),
            ExprKind::Fields(list) => list.iter().for_each(|(_, value)| self.expr(value)),
            ExprKind::Neg(value) | ExprKind::Not(value) => self.expr(value),
            ExprKind::Field(value, _) | ExprKind::Cast(value, _) => self.expr(value),
            ExprKind::Binary(_, left, right) => [left, right].into_iter().for_each(|value| self.expr(value)),
            ExprKind::If(condition, then, otherwise) => {
                self.expr(condition);
                [then, otherwise].into_iter().for_each(|body| self.body(body));
            }
            ExprKind::Block(body) => self.body(body),
            ExprKind::Call(function, arguments) => self.call(function, arguments),
        }
    }

    /// A called name is a function, whatever value has that name.
    fn call(&mut self, function: &Expr, arguments: &[Argument]) {
        match &function.kind {
            ExprKind::Name(name) => _ = self.named.insert(name.text.clone()),
            _ => self.expr(function),
        }
        arguments.iter().for_each(|argument| self.expr(&argument.value));
    }

    fn name(&mut self, name: &Name) {
        match self.scope.get(&name.text).and_then(|declared| declared.last()) {
            Some(index) => self.declared[*index].is_used = true,
            None => _ = self.named.insert(name.text.clone()),
        }
    }
}
