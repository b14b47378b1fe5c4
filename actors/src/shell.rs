//! Runs commands so that nothing outlives its call.
