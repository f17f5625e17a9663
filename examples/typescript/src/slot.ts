const SLOTS = 16_384;

/** The slot of a cluster that a key is in: of the part in braces, if it has one, so that keys can be kept together. */
export function slotOf(key: string): number {
  const bytes = Buffer.from(key);
  const open = bytes.indexOf("{");
  const close = open < 0 ? -1 : bytes.indexOf("}", open + 1);
  return crc16(close > open + 1 ? bytes.subarray(open + 1, close) : bytes) % SLOTS;
}

/** CRC16/XMODEM, as the cluster specification names it. */
function crc16(bytes: Uint8Array): number {
  let crc = 0;
  for (const byte of bytes) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit++) crc = (crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1) & 0xffff;
  }
  return crc;
}
