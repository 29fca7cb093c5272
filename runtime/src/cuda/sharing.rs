//! The order of uses of one memory on several streams: a write comes after all uses before it, a read after the write
//! before it.

/// How work uses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// It reads.
    Read,
    /// It writes, and may read.
    Write,
}

/// Who uses a memory that several streams have. The streams are `S`; nothing is kept of a memory that only one has.
#[derive(Debug)]
pub(crate) struct Sharing<S> {
    /// Streams that have been given the memory, besides the one that frees it.
    guests: Vec<S>,
    /// The last write.
    write: Option<Use<S>>,
    /// The last read since then, of every stream that has read.
    reads: Vec<Use<S>>,
}

/// A use of a memory.
#[derive(Debug)]
struct Use<S> {
    by: S,
    /// Streams that have waited for it.
    waited: Vec<S>,
}

impl<S: PartialEq> Use<S> {
    fn is_before(&self, stream: &S) -> bool {
        self.by == *stream || self.waited.contains(stream)
    }
}

impl<S> Default for Sharing<S> {
    fn default() -> Sharing<S> {
        Sharing { guests: vec![], write: None, reads: vec![] }
    }
}

impl<S: Clone + PartialEq> Sharing<S> {
    /// The streams besides the one that frees the memory; they are forgotten.
    pub(super) fn take_guests(&mut self) -> Vec<S> {
        std::mem::take(&mut self.guests)
    }

    /// Whether the use of a stream needs neither to wait nor to be noted.
    pub(super) fn permits(&self, stream: &S, access: Access) -> bool {
        let noted = |known: &Use<S>| known.by == *stream && known.waited.is_empty();
        self.guests.is_empty()
            || match access {
                Access::Read => self.before(stream, access).is_empty() && self.reads.iter().any(noted),
                Access::Write => self.write.as_ref().is_some_and(noted) && self.reads.is_empty(),
            }
    }

    /// The streams that a use must wait for.
    pub(super) fn before(&self, stream: &S, access: Access) -> Vec<S> {
        let reads = self.reads.iter().filter(|_| access == Access::Write);
        let uses = self.write.iter().chain(reads).filter(|earlier| !earlier.is_before(stream));
        uses.map(|earlier| earlier.by.clone()).collect()
    }

    /// Notes a use, which has waited.
    pub(super) fn note(&mut self, stream: &S, access: Access) {
        let own = Use { by: stream.clone(), waited: vec![] };
        if access == Access::Write {
            (self.write, self.reads) = (Some(own), vec![]);
            return;
        }
        self.write.iter_mut().for_each(|write| wait_for(write, stream));
        self.reads.retain(|read| read.by != *stream);
        self.reads.push(own);
    }

    /// Gives the memory to a stream, which has waited for all uses so far. `home` frees it.
    pub(super) fn invite(&mut self, guest: &S, home: &S) {
        if self.guests.is_empty() {
            self.note(home, Access::Write);
        }
        if guest != home && !self.guests.contains(guest) {
            self.guests.push(guest.clone());
        }
        self.write.iter_mut().chain(&mut self.reads).for_each(|earlier| wait_for(earlier, guest));
    }
}

fn wait_for<S: Clone + PartialEq>(earlier: &mut Use<S>, stream: &S) {
    if !earlier.is_before(stream) {
        earlier.waited.push(stream.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared() -> Sharing<char> {
        let mut sharing = Sharing::default();
        sharing.invite(&'b', &'a');
        sharing.invite(&'c', &'a');
        sharing
    }

    #[test]
    fn one_stream_alone_never_waits() {
        let sharing = Sharing::<char>::default();
        assert!(sharing.permits(&'a', Access::Write) && sharing.permits(&'a', Access::Read));
        assert!(sharing.before(&'a', Access::Write).is_empty());
    }

    #[test]
    fn reads_wait_for_the_last_write_once_and_not_for_each_other() {
        let mut sharing = shared();
        assert!(sharing.before(&'b', Access::Read).is_empty());
        sharing.note(&'c', Access::Write);
        for reader in ['a', 'b'] {
            assert_eq!(sharing.before(&reader, Access::Read), ['c']);
            sharing.note(&reader, Access::Read);
            assert!(sharing.before(&reader, Access::Read).is_empty() && sharing.permits(&reader, Access::Read));
        }
    }

    #[test]
    fn a_write_waits_for_the_last_write_and_all_reads_since_then() {
        let mut sharing = shared();
        sharing.note(&'a', Access::Write);
        assert_eq!(sharing.before(&'b', Access::Write), ['a']);
        sharing.note(&'b', Access::Read);
        sharing.note(&'a', Access::Read);
        assert_eq!(sharing.before(&'b', Access::Write), ['a']);
        assert_eq!(sharing.before(&'c', Access::Write), ['a', 'b', 'a']);
        assert!(!sharing.permits(&'a', Access::Write));
        sharing.note(&'a', Access::Write);
        assert!(sharing.permits(&'a', Access::Write));
        assert_eq!(sharing.before(&'b', Access::Read), ['a']);
    }

    #[test]
    fn a_read_after_an_own_write_is_waited_for() {
        let mut sharing = shared();
        sharing.note(&'a', Access::Write);
        sharing.note(&'b', Access::Read);
        assert!(!sharing.permits(&'a', Access::Read));
        sharing.note(&'a', Access::Read);
        assert_eq!(sharing.before(&'b', Access::Write), ['a']);
    }

    #[test]
    fn a_stream_that_takes_the_memory_over_need_not_wait_again() {
        let mut sharing = shared();
        sharing.note(&'c', Access::Write);
        sharing.note(&'b', Access::Read);
        sharing.invite(&'a', &'a');
        assert!(sharing.before(&'a', Access::Write).is_empty());
        assert!(!sharing.permits(&'b', Access::Read), "a later read must be noted");
        sharing.note(&'b', Access::Read);
        assert_eq!(sharing.before(&'a', Access::Write), ['b']);
    }
}
