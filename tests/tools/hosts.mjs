// Says how a browser's URL parser reads the hosts of test_hosts.py: node hosts.mjs > hosts.json
const hosts = [
  "evil.com", "EVIL.com.", "evil.com..", "www.evil.com", "a..evil.com", ".evil.com", "evil.com:80", "a@b@evil.com",
  "%65vil.com", "evil%2ecom", "evil%E3%80%82com", "%2565vil.com", "evil%00.com", "evil%20.com", "evil.com%2f.good.com",
  "a%40evil.com", "%", "%zz.com", "a%b.com", "e%cc%81vil.com", "%C3%A9vil.com", "%E9vil.com", "%E2%84%80.com",
  "a_b.ｅｖｉｌ.com", "ａ＿ｂ.evil.com", "evil。com", "evil．com", "ev\u00adil.com", "ⓔvil.com", "𝐞vil.com", "évil.com",
  "éVIL.com", "faß.de", "ẞ.de", "ﬀ.com", "İ.com", "ςa.com", "☕.example", "a☕_.evil.com", "-a-.evil.com",
  "a--b.evil.com", "-é-.evil.com", "\u0301evil.com", "a\u200db.com", "a\u200cb.com", "אa.com", "℀.com",
  "xn--bcher-kva.example", "XN--BCHER-KVA.example", "xn--evil-.com", "xn--fa-hia.de", "xn--a.evil.com",
  "xn--zzzz99.evil.com", "xn--é.evil.com",
  "0x7f.1", "0X7F.1", "2130706433", "127.1", "0177.0.0.1", "１２７.0.0.1", "0x.0x.0", "1.0x", "1.2.3", "1.2.3.4.",
  "0xffffffff", "0x100000000", "1.2.3.4.5", "256.1.1.1", "08.1.1.1", "foo.0x1", "foo.1", "1.2.3.04", "1..2", "1.0xg",
  "[::1]", "[0:0:0:0:0:0:0:1]", "[2001:DB8::0:1]", "[fe80::1%25eth0]", "[::1.2.3]",
  "a^b.com", "a|b.com", "a`b.com", "a{b}.com", "a!b$c.com", "a~b.com", "a'b.com", "a*b.com",
];
const read = (host) => { try { return new URL(`https://${host}/x`).hostname; } catch { return null; } };
const rows = hosts.map((host) => `  ${JSON.stringify(host)}: ${JSON.stringify(read(host))}`);
console.log(`{\n${rows.join(",\n")}\n}`);
