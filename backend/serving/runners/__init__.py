"""The runners' side of serving: servers register, fetch artifacts and report usage and what recipe packs saved."""
