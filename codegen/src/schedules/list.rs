//! The list of schedules as one type: a choice among the parameters of all of them.

/// Declares [`Schedule`](crate::schedules::Schedule): a line for each schedule, with its folder and its parameters.
macro_rules! schedules {
    ($($(#[$doc:meta])* $module:ident::$name:ident,)+) => {
        $(pub use $module::$name;)+

        /// One of the schedules, with its parameters: the way in which a stage runs.
        ///
        /// It prints as a text, which is part of a kernel's key, and parses back. What is known of it is said by the
        /// [`Strategy`] that it dereferences to.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Schedule { $($(#[$doc])* $name($name),)+ }

        impl ::std::ops::Deref for Schedule {
            type Target = dyn Strategy;

            fn deref(&self) -> &(dyn Strategy + 'static) {
                match self { $(Schedule::$name(own) => own,)+ }
            }
        }

        impl ::std::fmt::Display for Schedule {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                match self { $(Schedule::$name(own) => own.fmt(f),)+ }
            }
        }

        impl ::std::str::FromStr for Schedule {
            type Err = ParseScheduleError;

            fn from_str(text: &str) -> Result<Self, ParseScheduleError> {
                let name = text.split('(').next().unwrap_or_default();
                $(if name == $name::NAME {
                    return text.parse().map(Schedule::$name);
                })+
                Err(ParseScheduleError::Name(text.to_owned()))
            }
        }

        $(impl From<$name> for Schedule {
            fn from(own: $name) -> Schedule {
                Schedule::$name(own)
            }
        })+

        impl Schedule {
            /// The schedules that a stage may run under on an instruction set, with accesses of some width: all of the first one
            /// in the list, then all of the next.
            pub fn candidates(stage: &Stage, isa: Isa, access: Access) -> Vec<Schedule> {
                let mut all: Vec<Schedule> = vec![];
                $(if $name::takes(stage.kind()).is_ok() {
                    all.extend($name::candidates(stage, isa, access).into_iter().map(Schedule::$name));
                })+
                all
            }

            /// The schedules that combine one element after the other, from one end to the other, and assume nothing of strides
            /// and addresses; all of them give the same bits.
            pub fn ordered(stage: &Stage) -> Vec<Schedule> {
                let mut all: Vec<Schedule> = vec![];
                $(if $name::takes(stage.kind()).is_ok() {
                    all.extend($name::ordered(stage).into_iter().map(Schedule::$name));
                })+
                all
            }

            /// The schedule that any call of a stage may take, whatever its sizes, strides and addresses, on every device, if
            /// there is one.
            pub fn general(stage: &Stage) -> Option<Schedule> {
                $(if $name::takes(stage.kind()).is_ok() && let Some(own) = $name::general(stage) {
                    return Some(Schedule::$name(own));
                })+
                None
            }

            /// The schedules that are for stages of this sort but do not take the stage, by their names, and why.
            pub fn refusals(stage: &Stage) -> Vec<(&'static str, Refusal)> {
                let all = [$(($name::NAME, $name::takes(stage.kind()).err())),+];
                let own = all.into_iter().filter_map(|(name, refusal)| Some((name, refusal?)));
                own.filter(|(_, refusal)| !refusal.is_of_another_sort()).collect()
            }

            /// Whether the schedule is for stages of this kind.
            pub fn is_for(&self, stage: &Stage) -> bool {
                match self { $(Schedule::$name(_) => $name::takes(stage.kind()).is_ok(),)+ }
            }

            /// The kernels that a stage is run by under the schedule, in order.
            pub fn kernels(&self, stage: &Stage, isa: Isa) -> Vec<Schedule> {
                match self {
                    $(Schedule::$name(own) => own.kernels(stage, isa).into_iter().map(Schedule::$name).collect(),)+
                }
            }

            /// The schedule that also saves the states of a stage for its gradient; `None` where that cannot be.
            pub fn saving(&self, stage: &Stage) -> Option<Schedule> {
                match self { $(Schedule::$name(own) => own.saving(stage).map(Schedule::$name),)+ }
            }
        }
    };
}
