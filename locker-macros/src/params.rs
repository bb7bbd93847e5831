//! Parameters: the whole value by position, the bindings of a pattern by name.

use crate::{
    function::{Form, Function, hidden},
    kind::likeness,
    parts::Part,
    patterns::{bindings, binds, is_upper, kept, take_expected, unpacked},
};
use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream};
use quote::{ToTokens, quote};
use syn::{Error, Expr, FnArg, Pat, PatType, Result, Signature, Stmt, spanned::Spanned};

/// One parameter, `self` not counted.
pub(crate) struct Param {
    /// The name of the whole value; a pattern in the signature has none.
    whole: Option<Ident>,
    /// The names its pattern binds.
    bound: Vec<Ident>,
    /// The statement by which `#[async_trait]` takes the pattern apart.
    unpacked_by: Option<usize>,
    /// Whether that statement now stands before the first key.
    hoisted: bool,
}

impl Param {
    pub(crate) fn all(signature: &Signature, form: &Form) -> Vec<Self> {
        let statements: &[Stmt] = if let Form::AsyncTrait(_, statements) = form { statements } else { &[] };
        typed(signature).map(|param| Self::new(&param.pat, statements)).collect()
    }

    fn new(pat: &Pat, statements: &[Stmt]) -> Self {
        let whole = if let Pat::Ident(pat) = pat { Some(pat.ident.clone()) } else { None };
        let unpacking = whole.as_ref().and_then(|name| {
            statements.iter().enumerate().find_map(|(at, statement)| Some((at, unpacked(statement, name)?)))
        });
        let (unpacked_by, pat) = unpacking.map_or((None, pat), |(at, pat)| (Some(at), pat));
        Self { whole, bound: bindings(pat, |_| true), unpacked_by, hoisted: false }
    }

    fn is_pattern(&self) -> bool {
        self.whole.is_none() || self.unpacked_by.is_some()
    }
}

pub(crate) fn typed(signature: &Signature) -> impl Iterator<Item = &PatType> {
    signature
        .inputs
        .iter()
        .filter_map(|input| if let FnArg::Typed(param) = input { Some(param) } else { None })
}

pub(crate) fn typed_mut(signature: &mut Signature) -> impl Iterator<Item = &mut PatType> {
    signature
        .inputs
        .iter_mut()
        .filter_map(|input| if let FnArg::Typed(param) = input { Some(param) } else { None })
}

fn verbatim(tokens: TokenStream) -> Stmt {
    Stmt::Item(syn::Item::Verbatim(tokens))
}

/// How the parts of the keys reach the parameters, and what has to move for it.
#[derive(Default)]
pub(crate) struct Access {
    /// Stands before the first key.
    pub(crate) before: TokenStream,
    /// Stands at the head of the body.
    pub(crate) inside: TokenStream,
}

impl Function {
    pub(crate) fn names(&self) -> Vec<Ident> {
        self.params.iter().flat_map(|param| param.bound.clone()).collect()
    }

    /// Of this function, of what is around it, or of the module.
    fn may_be_constant(&self, name: &Ident) -> bool {
        let own = self.signature.generics.const_params().any(|param| param.ident == *name);
        own || is_upper(name)
    }

    /// Refuses a parameter that is given by its position and by its name.
    pub(crate) fn check_parts(&self, parts: &[&Part]) -> Result<()> {
        for (at, part) in parts.iter().enumerate() {
            let same = parts[..at].iter().find_map(|before| self.same(before, part));
            if let Some((index, name)) = same {
                let message = format!("`{name}` is given twice, for it is position {index}");
                return Err(Error::new(part.span(), message));
            }
        }
        Ok(())
    }

    fn same<'a>(&self, one: &'a Part, other: &'a Part) -> Option<(usize, &'a Ident)> {
        match (one, other) {
            (Part::Position(index, _), Part::Name(name)) | (Part::Name(name), Part::Position(index, _)) => {
                let param = self.params.get(*index).filter(|param| !param.is_pattern())?;
                (param.whole.as_ref() == Some(name)).then_some((*index, name))
            }
            _ => None,
        }
    }

    /// The value of a part, borrowed for the key.
    pub(crate) fn value_of(&self, part: &Part) -> Result<TokenStream> {
        match part {
            Part::Position(index, at) => {
                let param = self.params.get(*index).ok_or_else(|| self.out_of_range(*index, *at))?;
                let mut name = param.whole.clone().unwrap_or_else(|| renamed(*index));
                name.set_span(name.span().located_at(*at));
                Ok(name.to_token_stream())
            }
            Part::Name(name) if name == "self" && self.has_receiver() => Ok(name.to_token_stream()),
            Part::Name(name) if self.names().contains(name) || self.may_be_constant(name) => {
                Ok(name.to_token_stream())
            }
            Part::Name(name) => Err(self.unknown(name)),
            Part::Value(expr) => Ok(in_brackets(expr)),
        }
    }

    /// What a part needs to be let stand by lints that its author could do nothing about.
    pub(crate) fn allowed(&self, part: &Part) -> Option<TokenStream> {
        let Part::Position(index, _) = part else { return None };
        although_underscored(self.params.get(*index)?.whole.as_ref()?)
    }

    /// Gives whole values a name and bindings a place where the keys can see them.
    pub(crate) fn open(&mut self, parts: &[&Part]) -> Result<Access> {
        let mut access = Access::default();
        for index in 0..self.params.len() {
            let param = &self.params[index];
            let whole = parts.iter().find(|part| matches!(part, Part::Position(at, _) if *at == index));
            let named = param.bound.iter().any(|name| parts.iter().any(|part| part.mentions(name)));
            match (param.is_pattern(), param.unpacked_by, whole, named) {
                (true, _, Some(whole), true) => return Err(both(index, whole.span())),
                (true, None, Some(_), false) => access.inside.extend(self.rename(index)),
                (true, Some(statement), None, true) => access.before.extend(self.hoist(index, statement)),
                (false, _, whole, named) if named || whole.is_some() => self.touch(index),
                _ => {}
            }
        }
        Ok(access)
    }

    /// `(a, b): T` becomes `mut name: T` in the signature and `let (a, b) = name;` in the body. What that leaves of it
    /// lives as long as without the attribute.
    fn rename(&mut self, index: usize) -> Option<TokenStream> {
        let param = typed_mut(&mut self.signature).nth(index)?;
        let name = renamed(index);
        // `mut`, for what a `ref mut` in it changes; of a name with an underscore nobody asks whether it has to be.
        let pat = std::mem::replace(&mut *param.pat, syn::parse_quote!(mut #name));
        let pat = (!matches!(pat, Pat::Wild(_))).then_some(pat)?;
        let (expected, kept) = (take_expected(param), kept(param));
        Some(quote!(#(#expected)* #(#kept)* let #pat = #name;))
    }

    fn hoist(&mut self, index: usize, statement: usize) -> Option<TokenStream> {
        let Form::AsyncTrait(_, statements) = &mut self.form else { return None };
        let hoisted = statements[statement].to_token_stream();
        statements[statement] = verbatim(TokenStream::new());
        self.params[index].hoisted = true;
        Some(hoisted)
    }

    /// The names that were bound before the first key instead of in the body.
    pub(crate) fn hoisted(&self) -> impl DoubleEndedIterator<Item = &Ident> {
        self.params.iter().filter(|param| param.hoisted).flat_map(|param| &param.bound)
    }

    /// Whether the part is the position of this parameter.
    pub(crate) fn is_at(&self, part: &Part, name: &Ident) -> bool {
        matches!(part, Part::Position(at, _) if self.params.get(*at).is_some_and(|param| param.whole.as_ref() == Some(name)))
    }

    /// After `let name = name;` of `#[async_trait]`, so that a name used by the key only does not count as unused.
    fn touch(&mut self, index: usize) {
        let Form::AsyncTrait(_, statements) = &mut self.form else { return };
        let Some(name) = &self.params[index].whole else { return };
        let binds =
            |statement: &&mut Stmt| matches!(statement, Stmt::Local(local) if binds(&local.pat, name));
        if let Some(statement) = statements.iter_mut().find(binds) {
            *statement = verbatim(quote!(#statement let _ = &#name;));
        }
    }

    fn out_of_range(&self, index: usize, at: Span) -> Error {
        let function = &self.signature.ident;
        let message = match self.params.len() {
            0 => format!("`{function}` has no parameters, so there is no position {index}"),
            1 => format!("`{function}` has one parameter, so the only position is 0"),
            count => format!("`{function}` has {count} parameters, so positions go from 0 to {}", count - 1),
        };
        Error::new(at, format!("{message} (`self` is not counted)"))
    }

    fn unknown(&self, name: &Ident) -> Error {
        let names = self.names().iter().map(ToString::to_string).collect::<Vec<_>>();
        let text = name.to_string();
        let near = names.iter().max_by(|a, b| likeness(a, &text).total_cmp(&likeness(b, &text)));
        let hint = match near.filter(|near| likeness(near, &text) > 0.7) {
            Some(near) => format!("did you mean `{near}`?"),
            None if names.is_empty() => "there is none with a name".to_owned(),
            None => format!("its parameters are `{}`", names.join("`, `")),
        };
        Error::new(name.span(), format!("`{}` has no parameter `{name}`; {hint}", self.signature.ident))
    }
}

fn renamed(index: usize) -> Ident {
    hidden(&format!("parameter_{index}"))
}

fn both(index: usize, at: Span) -> Error {
    let message = format!(
        "position {index} is the whole value of a pattern whose bindings are used too: use the position or the names"
    );
    Error::new(at, message)
}

/// In brackets where a `&` before it would otherwise bind to less than all of it.
pub(crate) fn in_brackets(expr: &Expr) -> TokenStream {
    use Expr as E;
    match expr {
        E::Path(_)
        | E::Field(_)
        | E::MethodCall(_)
        | E::Call(_)
        | E::Index(_)
        | E::Macro(_)
        | E::Reference(_)
        | E::Paren(_)
        | E::Tuple(_)
        | E::Block(_)
        | E::Lit(_)
        | E::Await(_)
        | E::Try(_)
        | E::Unary(_) => expr.to_token_stream(),
        E::Group(group) => in_brackets(&group.expr),
        _ => {
            // Brackets from here to there would make lints point at the whole attribute.
            let mut brackets = Group::new(Delimiter::Parenthesis, expr.to_token_stream());
            brackets.set_span(Span::mixed_site().located_at(expr.span()));
            brackets.to_token_stream()
        }
    }
}

/// Lets generated code use a name that its owner does not.
pub(crate) fn although_underscored(name: &Ident) -> Option<TokenStream> {
    name.to_string().starts_with('_').then(|| quote!(#[allow(clippy::used_underscore_binding)]))
}
