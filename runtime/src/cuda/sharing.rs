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
    /// The stream that wrote last.
    writer: Option<S>,
    /// Streams that come after that write.
    after: Vec<S>,
    /// Streams that have read since then.
    readers: Vec<S>,
}

impl<S> Default for Sharing<S> {
    fn default() -> Sharing<S> {
        Sharing { guests: vec![], writer: None, after: vec![], readers: vec![] }
    }
}

impl<S: Clone + PartialEq> Sharing<S> {
    /// The streams besides the one that frees the memory; they are forgotten.
    pub(super) fn take_guests(&mut self) -> Vec<S> {
        std::mem::take(&mut self.guests)
    }

    /// Whether the use of a stream needs neither to wait nor to be noted.
    pub(super) fn permits(&self, stream: &S, access: Access) -> bool {
        let only = |streams: &[S]| streams.iter().all(|other| other == stream);
        self.guests.is_empty()
            || match access {
                Access::Read => self.after.contains(stream) && self.readers.contains(stream),
                Access::Write => self.writer.as_ref() == Some(stream) && only(&self.after) && self.readers.is_empty(),
            }
    }

    /// The streams that a use must wait for.
    pub(super) fn before(&self, stream: &S, access: Access) -> Vec<S> {
        let writer = self.writer.iter().filter(|_| !self.after.contains(stream));
        let readers = self.readers.iter().filter(|_| access == Access::Write);
        writer.chain(readers).filter(|other| *other != stream).cloned().collect()
    }

    /// Notes a use, which has waited.
    pub(super) fn note(&mut self, stream: &S, access: Access) {
        if access == Access::Write {
            self.writer = Some(stream.clone());
            self.after.clear();
            self.readers.clear();
        } else {
            add(&mut self.readers, stream);
        }
        add(&mut self.after, stream);
    }

    /// Gives the memory to a stream, which has waited for all uses so far. `home` frees it.
    pub(super) fn invite(&mut self, guest: &S, home: &S) {
        if self.guests.is_empty() {
            self.note(home, Access::Write);
        }
        if guest != home {
            add(&mut self.guests, guest);
        }
        add(&mut self.after, guest);
    }
}

fn add<S: Clone + PartialEq>(streams: &mut Vec<S>, stream: &S) {
    if !streams.contains(stream) {
        streams.push(stream.clone());
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
}
