//! The text form of schedules: `name(field=value, …)`.

use std::str::FromStr;

use thiserror::Error;

/// Declares a schedule: a struct of small numbers that prints as `name(field=value, …)` and parses back. A field with a usual value
/// is left out of the text where it has that value.
macro_rules! schedule {
    (@usual) => { None };
    (@usual $usual:expr) => { Some($usual) };
    ($(#[$doc:meta])* $name:ident, $text:literal {
        $($(#[$field_doc:meta])* $field:ident: $ty:ty $(= $usual:expr)?,)+
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name { $($(#[$field_doc])* pub $field: $ty,)+ }

        impl $name {
            /// The name that the schedule's text begins with.
            pub const NAME: &'static str = $text;
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                let fields = [$({
                    let usual: Option<$ty> = schedule!(@usual $($usual)?);
                    (usual != Some(self.$field)).then(|| format!(concat!(stringify!($field), "={}"), self.$field))
                }),+];
                write!(f, concat!($text, "({})"), fields.into_iter().flatten().collect::<Vec<_>>().join(", "))
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = $crate::schedules::text::ParseScheduleError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let fields = $crate::schedules::text::Fields::of($text, text)?;
                let schedule = $name { $($field: fields.get(stringify!($field), schedule!(@usual $($usual)?))?),+ };
                fields.end(&[$(stringify!($field)),+])?;
                Ok(schedule)
            }
        }
    };
}

/// Declares a choice that a schedule's text names by a word.
macro_rules! word {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$variant_doc])* $variant,)+ }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(match self { $($name::$variant => $text,)+ })
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = $crate::schedules::text::ParseScheduleError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($text => Ok($name::$variant),)+
                    _ => Err($crate::schedules::text::ParseScheduleError::Value(text.to_owned())),
                }
            }
        }
    };
}

/// Why a text is not a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParseScheduleError {
    /// No schedule has that name, or it is not followed by fields in parentheses.
    #[error("`{0}` is not a schedule; write e.g. `map(lane=0, warps=8, vector=4, vectors=4)`")]
    Name(String),
    /// A field is missing.
    #[error("the field `{0}` is missing")]
    Missing(&'static str),
    /// A field is unknown or is not written `field=value`.
    #[error("`{0}` is not a field of this schedule")]
    Field(String),
    /// A value is neither a number nor a word that the field knows.
    #[error("`{0}` is not a value of this field")]
    Value(String),
}

/// The fields of a schedule's text.
pub(crate) struct Fields<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Fields<'a> {
    pub(crate) fn of(name: &str, text: &'a str) -> Result<Self, ParseScheduleError> {
        let body = text.strip_prefix(name).and_then(|t| t.strip_prefix('(')).and_then(|t| t.strip_suffix(')'));
        let body = body.ok_or_else(|| ParseScheduleError::Name(text.to_owned()))?;
        let field = |part: &'a str| {
            part.trim().split_once('=').ok_or_else(|| ParseScheduleError::Field(part.trim().to_owned()))
        };
        Ok(Fields(body.split(',').map(field).collect::<Result<_, _>>()?))
    }

    /// The value of a field, or its usual one where the text leaves it out.
    pub(crate) fn get<T: FromStr>(&self, name: &'static str, usual: Option<T>) -> Result<T, ParseScheduleError> {
        let Some((_, text)) = self.0.iter().find(|(n, _)| *n == name) else {
            return usual.ok_or(ParseScheduleError::Missing(name));
        };
        text.parse().map_err(|_| ParseScheduleError::Value((*text).to_owned()))
    }

    pub(crate) fn end(&self, known: &[&str]) -> Result<(), ParseScheduleError> {
        let odd =
            self.0.iter().enumerate().find(|(i, (name, _))| {
                !known.contains(name) || self.0[..*i].iter().any(|(earlier, _)| earlier == name)
            });
        odd.map_or(Ok(()), |(_, (name, _))| Err(ParseScheduleError::Field((*name).to_owned())))
    }
}
