//! An event stream at a node that is not the holder: no gap, nothing twice, whatever happens.
