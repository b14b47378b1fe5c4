//! Decides which addresses are on the public internet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Private, special and unassigned networks, from the IANA registries of special addresses, and
/// addresses that clouds reserve.
const REFUSED_V4: [(Ipv4Addr, u32); 18] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    // Link-local, including the metadata services of most clouds.
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    // Azure's services for virtual machines, including metadata.
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 31, 196, 0), 24),
    (Ipv4Addr::new(192, 52, 193, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// All allocated unicast addresses. Loopback, unique local, link-local, site-local, multicast,
/// IPv4-mapped, IPv4-compatible and local NAT64 addresses are outside this range.
const GLOBAL_V6: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
/// Special networks in that range: protocols (including Teredo), documentation, 6to4,
/// documentation.
const REFUSED_V6: [(Ipv6Addr, u32); 4] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];
/// NAT64: the last 32 bits are the IPv4 address that a gateway connects to.
const NAT64: (Ipv6Addr, u32) = (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

/// Whether anyone on the internet can reach the address, so that reaching it from here reveals
/// nothing. Addresses that wrap another one are refused, except NAT64, where the wrapped address
/// decides.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !REFUSED_V4.iter().any(|net| is_in_v4(address, *net)),
        IpAddr::V6(address) if is_in_v6(address, NAT64) => {
            let [.., a, b, c, d] = address.octets();
            is_public(Ipv4Addr::new(a, b, c, d).into())
        }
        IpAddr::V6(address) => {
            is_in_v6(address, GLOBAL_V6) && !REFUSED_V6.iter().any(|net| is_in_v6(address, *net))
        }
    }
}

fn is_in_v4(address: Ipv4Addr, (net, bits): (Ipv4Addr, u32)) -> bool {
    (address.to_bits() ^ net.to_bits()) >> (32 - bits) == 0
}

fn is_in_v6(address: Ipv6Addr, (net, bits): (Ipv6Addr, u32)) -> bool {
    (address.to_bits() ^ net.to_bits()) >> (128 - bits) == 0
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// An address inside each refused network, and its first and last address.
    const REFUSED: &str = "
        0.0.0.0 0.255.255.255 10.0.0.0 10.1.2.3 10.255.255.255 100.64.0.0 100.100.100.200
        100.127.255.255 127.0.0.0 127.0.0.1 127.255.255.255 168.63.129.16 169.254.0.0
        169.254.169.254 169.254.255.255 172.16.0.0 172.31.255.255 192.0.0.0 192.0.0.192 192.0.0.255
        192.0.2.0 192.0.2.255 192.31.196.1 192.52.193.1 192.88.99.0 192.88.99.255 192.168.0.0
        192.168.255.255 198.18.0.0 198.19.255.255 198.51.100.0 198.51.100.255 203.0.113.0
        203.0.113.255 224.0.0.0 239.255.255.255 240.0.0.0 255.255.255.254 255.255.255.255
        :: ::1 ::7f00:1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:8.8.8.8 ::ffff:0:8.8.8.8
        64:ff9b::127.0.0.1 64:ff9b::10.0.0.1 64:ff9b::169.254.169.254 64:ff9b:1::8.8.8.8
        64:ff9b:1:ffff::1 64:ff9b:0:1::8.8.8.8 100::1 1fff:ffff::1 2001:: 2001:0:4136:e378::1
        2001:2::1 2001:10::1 2001:1ff:ffff::1 2001:db8::1 2001:db8:ffff::1 2002:: 2002:7f00:1::1
        2002:808:808::1 2002:ffff::1 3fff::1 3fff:fff:ffff::1 4000::1 5f00::1 fc00::1
        fd00:ec2::254 fdff::1 fe80::1 febf::1 fec0::1 feff::1 ff02::1 ffff::1";
    /// The addresses right before and right after each of them, and some well-known ones.
    const PUBLIC: &str = "
        1.0.0.0 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0
        168.63.129.15 168.63.129.17 169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0
        191.255.255.255 192.0.1.0 192.0.3.0 192.88.98.255 192.88.100.0 192.167.255.255 192.169.0.0
        198.17.255.255 198.20.0.0 198.51.99.255 198.51.101.0 203.0.112.255 203.0.114.0
        223.255.255.255 64:ff9b::8.8.8.8 2000::1 2001:200::1 2001:db7::1 2001:db9::1 2003::1
        2001:4860:4860::8888 2606:4700:4700::1111 3ffe::1 3fff:1000::1";

    #[test]
    fn an_address_is_public_or_refused() {
        for (addresses, expected) in [(REFUSED, false), (PUBLIC, true)] {
            for address in addresses.split_whitespace() {
                assert_eq!(is_public(address.parse().unwrap()), expected, "{address}");
            }
        }
    }
}
