# Copyright 2026 spec_vlm_nav maintainers
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""
Stop phrases of further languages in European alphabets.

Phrases are in normal spelling; `stop_readings` folds case, accents and signs. Other scripts are in
`stop_scripts`; English, German, French and Spanish are in `stop_phrases`.

A language has heads, which mean stop by themselves; openers, which may precede a head; fillers,
which may follow one; and places, which turn a sentence with an open head into an instruction ("стой
у двери"). Bars separate phrases. In languages with the verb last, a place precedes the verb and is
not an opener.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Language:
    """The phrases of one language. heads: open heads, which anything but a place may follow."""

    heads: str = ""
    closed: str = ""
    openers: str = ""
    fillers: str = ""
    places: str = ""


EUROPEAN: dict[str, Language] = {
    "Portuguese": Language(
        heads=(
            "pare | parem | parar | parada | detenha-se | detém-te | não se mova | "
            "não te movas | não se mexa | não te mexas | não mexa | espera aí | espere | "
            "aguarde | cancele | cancelar | aborte | abortar | parada de emergência | "
            "fique parado | fica parado | congele | freie | chega"
        ),
        closed="fique aí | fica aí | quieto | alto lá | parado",
        openers="agora | pelo amor de deus | robô | cão | ei | por gentileza | você deve",
        fillers=(
            "agora | já | imediatamente | aqui | ali | robô | o robô | obrigado | de andar | "
            "de se mover | tudo"
        ),
        places=(
            "na no nas nos em perto ao à às diante atrás junto dentro sob sobre antes depois "
            "quando até assim se entre"
        ),
    ),
    "Italian": Language(
        heads=(
            "fermati | fermatevi | fermo | ferma | fermi | si fermi | fermate | alt | "
            "arrestati | arresta | arresto | arresto di emergenza | stai fermo | "
            "stai ferma | resta fermo | sta fermo | non muoverti | non ti muovere | "
            "non muovetevi | non si muova | aspetta | aspetti | attendi | annulla | "
            "interrompi | smettila | smetti | basta così | frena | blocca | bloccati"
        ),
        closed="basta | altolà | resta lì | stai lì | resta qui",
        openers="per favore | ti prego | subito | adesso | ora | cane | ehi | devi",
        fillers=(
            "subito | adesso | ora | qui | lì | immediatamente | il robot | grazie | tutto | "
            "di muoverti"
        ),
        places=(
            "alla allo al agli alle ai presso vicino davanti dietro accanto nella nello nel "
            "nei sul sulla sotto sopra prima dopo quando appena se tra fra"
        ),
    ),
    "Dutch": Language(
        heads=(
            "stop met bewegen | hou op | houd op | ophouden | sta stil | blijf staan | "
            "stilstaan | niet bewegen | beweeg niet | noodstop | wacht | wachten | "
            "afbreken | annuleer | annuleren | stoppen | blijf stil | geen beweging | rem | "
            "remmen"
        ),
        closed="blijf daar | blijf hier | genoeg | ho",
        openers="alsjeblieft | alstublieft | nu | meteen | onmiddellijk | nee | hé | je moet",
        fillers=(
            "nu | meteen | onmiddellijk | hier | daar | alsjeblieft | alstublieft | "
            "de robot | ermee"
        ),
        places=(
            "bij aan voor achter naast naar op onder boven tussen zodra wanneer als nadat "
            "voordat met tegenover tegen langs"
        ),
    ),
    "Polish": Language(
        heads=(
            "stój | stójcie | zatrzymaj się | zatrzymaj | zatrzymać | zatrzymaj robota | "
            "stać | nie ruszaj się | nie ruszać się | proszę się zatrzymać | czekaj | "
            "poczekaj | zaczekaj | przerwij | anuluj | przestań | stop awaryjny | "
            "zatrzymanie awaryjne | hamuj"
        ),
        closed="wystarczy | dość | zostań | zostań tam",
        openers="proszę | teraz | natychmiast | robocie | hej | musisz",
        fillers="teraz | natychmiast | tutaj | tu | tam | proszę | robota | robocie | już",
        places="przy przed za obok koło na w pod nad między gdy kiedy jeśli jak po u",
    ),
    "Ukrainian": Language(
        heads=(
            "стій | стійте | стоп | зупинись | зупинися | зупиніться | зупини | зупинити | "
            "зупинка | не рухайся | не рухайтесь | завмри | зачекай | чекай | почекай | "
            "скасуй | припини | гальмуй | аварійна зупинка | стояти"
        ),
        closed="досить | годі | стій там",
        openers="будь ласка | зараз | негайно | роботе | ні | гей",
        fillers="зараз | негайно | тут | там | робота | роботе | будь ласка | на місці | зараз же",
        places="біля перед за поруч коло у в на під над між коли якщо після до",
    ),
    "Russian": Language(
        heads=(
            "стой | стойте | стоп | остановись | остановитесь | остановиться | останови | "
            "остановите | остановка | замри | замрите | не двигайся | не двигайтесь | "
            "не двигаться | не шевелись | ни с места | стоять | подожди | подождите | "
            "погоди | жди | отмена | отмени | отставить | прекрати | прекратите | тормози | "
            "аварийная остановка | экстренная остановка | прервать | тпру"
        ),
        closed="хватит | достаточно | довольно | пауза | стой там",
        openers=(
            "пожалуйста | сейчас | немедленно | срочно | быстро | робот | нет | эй | ну | "
            "так | ты должен | собака | я сказал"
        ),
        fillers=(
            "пожалуйста | сейчас | сейчас же | немедленно | срочно | здесь | тут | там | "
            "робот | робота | на месте | уже | всё"
        ),
        places="у перед за рядом возле около на в во под над между когда если после до при с",
    ),
    "Bulgarian": Language(
        heads="спри | спрете | стой | не мърдай | чакай | изчакай",
        openers="моля | веднага",
        fillers="веднага | моля | тук",
        places="до при пред зад когато ако",
    ),
    "Serbian and Croatian": Language(
        heads=(
            "stani | stanite | zaustavi se | zaustavi | stoj | ne miči se | ne mrdaj | "
            "čekaj | стани | заустави се | стој | не мрдај | чекај"
        ),
        openers="molim | molim te | odmah | молим | одмах",
        fillers="odmah | molim | tu | ovdje | одмах",
        places=(
            "kod pred ispred iza pored kraj na u kada kad ako код пред испред иза поред на у "
            "кад ако"
        ),
    ),
    "Czech and Slovak": Language(
        heads=(
            "stůj | zastav | zastavte | zastav se | zastavit | nehýbej se | nehýbejte se | "
            "počkej | čekej | zruš | přestaň | stoj | zastav sa | nehýb sa | počkaj | "
            "nouzové zastavení"
        ),
        openers="prosím | hned | okamžitě | ihned",
        fillers="hned | okamžitě | ihned | tady | tam | tu | prosím | robote",
        places="u před za vedle na v pod nad mezi když až jestli pri pred vedľa keď ak",
    ),
    "Romanian": Language(
        heads=(
            "oprește-te | opriți-vă | oprește | opriți | stai pe loc | nu te mișca | "
            "nu mișca | așteaptă | oprire de urgență | anulează | stați"
        ),
        closed="stai | stai acolo | ajunge | destul",
        openers="te rog | vă rog | acum | imediat",
        fillers="acum | imediat | aici | acolo | te rog | robotul | robotule",
        places="lângă în când dacă după înainte sub pe",
    ),
    "Hungarian": Language(
        heads=(
            "állj | álljon meg | állj meg | megállj | megállni | ne mozdulj | ne mozogj | "
            "várj | vészleállás | fejezd be"
        ),
        closed="elég | maradj ott",
        openers="kérlek | kérem | most | azonnal",
        fillers="most | azonnal | itt | ott | kérlek | már | robot",
        places="az a ha amikor",
    ),
    "Greek": Language(
        heads=(
            "σταμάτα | σταματήστε | σταμάτησε | στοπ | αλτ | ακίνητος | ακίνητη | "
            "μην κινείσαι | μην κουνηθείς | μην κουνιέσαι | περίμενε | ακύρωση | στάσου | "
            "επείγουσα στάση"
        ),
        closed="αρκετά | φτάνει | στάση",
        openers="παρακαλώ | τώρα | αμέσως | ρομπότ | όχι",
        fillers="τώρα | αμέσως | εδώ | εκεί | παρακαλώ | ρομπότ | το ρομπότ",
        places="στην στο στη στον στα μπροστά δίπλα πίσω κοντά όταν αν μετά πριν",
    ),
    "Swedish, Norwegian and Danish": Language(
        heads=(
            "stanna | stopp | stoppa | stå still | stå stilla | rör dig inte | rör dig ej | "
            "vänta | avbryt | nödstopp | stans | ikke beveg deg | ikke rør deg | vent | "
            "nødstopp | stå stille | bevæg dig ikke | stands | afbryd | nødstop | frys"
        ),
        closed="stå | bli där | det räcker | nok",
        openers="snälla | nu | genast | omedelbart | vær så snill | nå | venligst",
        fillers=(
            "nu | genast | omedelbart | umiddelbart | här | her | där | der | roboten | "
            "med det samma | straks | tack | takk | tak"
        ),
        places=(
            "vid framför bakom bredvid när om efter innan under på ved foran bak bag når "
            "hvis etter efter"
        ),
    ),
    "Finnish": Language(
        heads=(
            "seis | pysähdy | pysähtykää | pysäytä | älä liiku | älkää liikkuko | odota | "
            "keskeytä | peruuta | hätäseis | lopeta"
        ),
        openers="ole hyvä | nyt | heti",
        fillers="nyt | heti | tähän | siihen | robotti",
        places="oven kun jos ennen",
    ),
    "Turkish": Language(
        closed=(
            "dur | durun | durunuz | dursun | durdur | durdurun | robotu durdur | "
            "durdurunuz | kıpırdama | kımıldama | hareket etme | hareket etmeyin | bekle | "
            "bekleyin | yeter | kes | iptal | iptal et | acil durdurma | acil dur | "
            "acil stop | dur bakalım | dur yerinde | yerinde dur | olduğun yerde dur | "
            "olduğun yerde kal | sakın kıpırdama | fren yap"
        ),
        openers="lütfen | şimdi | hemen | derhal | hayır | hey | robot | köpek | çabuk | artık",
        fillers=(
            "lütfen | şimdi | hemen | derhal | artık | robot | burada | orada | diyorum | "
            "dedim | sana"
        ),
    ),
    "Azerbaijani, Uzbek and Kazakh": Language(
        closed=(
            "dayan | dayanın | hərəkət etmə | to'xta | to'xtang | toxta | тоқта | тоқтаңыз | "
            "қозғалма | тўхта"
        ),
        openers="xahiş edirəm | indi | iltimos | hozir | қазір",
        fillers="indi | hozir | қазір",
    ),
    "Indonesian and Malay": Language(
        heads=(
            "berhenti | hentikan | setop | jangan bergerak | jangan gerak | diam di tempat | "
            "tunggu | batalkan | batal | berhentilah | rem | berhenti darurat"
        ),
        closed="diam | cukup | sudah cukup | tetap di sana",
        openers="tolong | mohon | sekarang | segera | cepat | anjing | tidak | hei",
        fillers=(
            "sekarang | segera | di sini | di sana | di situ | robot | juga | dulu | "
            "sekarang juga | tolong | di tempat"
        ),
        places="di dekat depan belakang samping saat ketika jika kalau sebelum setelah pada",
    ),
    "Javanese": Language(
        heads="mandheg | mandeg | mandhego | mandega | aja obah | entenana",
        openers="tulung | saiki",
        fillers="saiki | kene | robot",
        places="ing ana cedhak nalika yen",
    ),
    "Tagalog": Language(
        heads=(
            "hinto na | tigil na | itigil na | huminto na | hinto | huminto | huminto ka | "
            "tigil | tumigil | tumigil ka | itigil | itigil mo | ihinto | ihinto mo | "
            "huwag kang gumalaw | huwag gumalaw | teka | hintay | maghintay | maghintay ka"
        ),
        closed="tama na | sandali | para",
        openers="pakiusap | ngayon | paki | agad",
        fillers="ngayon | agad | dito | diyan | doon | ka | muna | po | ang robot | mo",
        places="sa kapag kung malapit",
    ),
    "Vietnamese": Language(
        heads=(
            "dừng lại | dừng | đứng lại | đứng yên | ngừng lại | ngừng | đừng di chuyển | "
            "đừng nhúc nhích | đừng cử động | chờ đã | dừng khẩn cấp | hủy | hủy bỏ | "
            "phanh lại | thôi đi"
        ),
        closed="đợi | đợi đã | chờ | đủ rồi",
        openers="làm ơn | xin | xin hãy | hãy | bây giờ | ngay | không | này | mau",
        fillers="ngay | ngay lập tức | lại | bây giờ | ở đây | tại chỗ | robot | ngay bây giờ",
        places="ở tại trước sau cạnh gần bên khi nếu trong trên dưới",
    ),
    "Swahili": Language(
        heads=(
            "simama | simameni | acha | usisogee | usitembee | usiende | ngoja | subiri | "
            "sitisha | komesha | koma"
        ),
        closed="inatosha | basi",
        openers="tafadhali | sasa | haraka | roboti | hapana",
        fillers="sasa | sasa hivi | hapa | hapo | mara moja | roboti | tafadhali | kusonga",
        places="kwenye mbele karibu nyuma kando kabla ukiona ukifika wakati kama",
    ),
    "Hausa": Language(
        heads="tsaya | ku tsaya | dakata | kada ka motsa | ka tsaya | jira",
        openers="don allah | yanzu",
        fillers="yanzu | nan | nan take | a nan | can | robot | cak",
        places="a kusa gaban bayan idan lokacin",
    ),
    "Yoruba, Igbo and Zulu": Language(
        heads="dúró | má lọ | má rìn | kwụsị | kwusi | ima | yima | misa",
        openers="jọ̀wọ́ | jọwọ | biko | ngicela",
        fillers="báyìí | nísisìyí | ugbu a | manje | ebe ahụ | níbẹ̀",
        places="ní sí na ngase",
    ),
    "Nigerian Pidgin": Language(
        heads=(
            "abeg stop | make you stop | wait first | no move | no waka | no dey move | "
            "stop am"
        ),
        openers="abeg | oya | biko | oga",
        fillers="abeg | now now | dere | joor",
    ),
    "Mongolian": Language(
        closed="зогс | зогсоо | зогсоорой | хөдлөхгүй",
        openers="одоо",
        fillers="одоо",
    ),
    "Esperanto": Language(
        heads="haltu | ĉesu | ne moviĝu",
        fillers="nun | tuj",
        places="ĉe antaŭ apud kiam",
    ),
    "romanised": Language(
        heads=(
            "stoy | ostanovis | ostanovites | stoi | zupynys | tawaqqaf | tawaqaf | "
            "la tataharrak | stamata"
        ),
        closed=(
            "qif | tomare | tomatte | yamero | yamete | matte | teishi | ugoku na | "
            "ugokuna | meomchwo | meomchuseyo | jeongji | ting xia | ting xia lai | "
            "tingxia | tingxialai | tingzhi | ting zhi | bie dong | biedong | zhanzhu | "
            "zhan zhu | yut | yood"
        ),
    ),
}
