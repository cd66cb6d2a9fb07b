// Light modules that the standard wants around a QR code (ISO/IEC 18004 §6.3.8).
export const QUIET = 4;
